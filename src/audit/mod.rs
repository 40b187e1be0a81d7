//! Proving that what is derived is what the log says, and deriving it again.
