//! Enums of the published API that mirror enums of events.

/// Converts between an enum of the API and the one that it mirrors, which has variants of the same names.
macro_rules! mirror {
    ($published:path, $mirrored:path: $($variant:ident),+) => {
        impl From<$mirrored> for $published {
            fn from(value: $mirrored) -> Self {
                match value { $(<$mirrored>::$variant => Self::$variant,)+ }
            }
        }

        impl From<$published> for $mirrored {
            fn from(value: $published) -> Self {
                match value { $(<$published>::$variant => Self::$variant,)+ }
            }
        }
    };
}
pub(super) use mirror;
