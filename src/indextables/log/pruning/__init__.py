"""Which files of a table a condition or an order can leave out, by what the log knows of them."""
