"""Options of the Java processes that tests start."""

# One compiler, room for all that it compiles, and a garbage collector of one thread: these processes live for
# minutes. With the small room for code that is the default of one compiler, the JVM compiles methods again
# and again.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
