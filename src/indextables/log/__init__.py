"""The table's history: versions, states, and what is live at each of them."""
