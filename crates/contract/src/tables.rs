//! Structs with their defaults, and enums with the words of their variants, each in one table.

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

/// An enum whose variants name their words, or what else belongs to each. It has all of them as `ALL`, and a function that
/// returns what belongs to one.
#[macro_export]
macro_rules! with_words {
    (
        $(#[$about:meta])* pub enum $name:ident { $($(#[$says:meta])* $variant:ident = $word:expr,)* }
        $(#[$returns:meta])* $visible:vis fn $function:ident() -> $kind:ty;
    ) => {
        $(#[$about])*
        pub enum $name { $($(#[$says])* $variant,)* }

        impl $name {
            pub const ALL: [$name; [$($name::$variant),*].len()] = [$($name::$variant),*];

            $(#[$returns])*
            $visible const fn $function(self) -> $kind {
                match self { $($name::$variant => $word,)* }
            }
        }
    };
}
