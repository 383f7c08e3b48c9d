//! A struct and its defaults in one place.

/// A struct whose fields name their defaults. A field without one has that of its type.
#[macro_export]
macro_rules! with_defaults {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$says:meta])* pub $field:ident: $kind:ty $(= $default:expr)?,)* }) => {
        $(#[$about])*
        pub struct $name { $($(#[$says])* pub $field: $kind,)* }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $crate::with_defaults!(@ $($default)?),)* }
            }
        }
    };
    (@ $default:expr) => { $default };
    (@) => { Default::default() };
}
