"""Bytes on local disk and object stores."""
