"""Version of this library."""

VERSION = "1.0.0"
