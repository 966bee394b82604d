"""The log of a table: its versions, its states, and the live splits at each version."""
