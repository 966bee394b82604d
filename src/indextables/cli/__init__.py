"""The program `indextables`: tables on the command line, without Spark."""
