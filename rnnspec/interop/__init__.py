"""Other libraries' layers, operators and files. Each module is imported only when it is asked for,
and needs its library only then."""
