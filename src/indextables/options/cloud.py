"""Options of object stores: where they are and who we are there."""
