//! Where CPython's fields are. A version's layout is constant over its patch releases, so 3.9 to 3.12 have a table; from 3.13 on
//! the process describes itself (`debug_offsets`), and the table of 3.13 has the fields that it leaves out. Pure.

/// Defines `Layout` by the rows of `tables.rs`: a field, and its value in each version.
macro_rules! layouts {
    (minor: $($minor:literal)+; $($field:ident: $($offset:literal)+;)+) => {
        /// The places of CPython's fields that are read, in bytes. 0 stands for a field that the version does not have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Layout {
            /// 11 for CPython 3.11.
            pub minor: u32,
            $(pub $field: u64,)+
        }

        impl Layout {
            /// Returns the layout in a column of the table.
            pub fn of_column(column: usize) -> Option<Layout> {
                Some(Layout { minor: *[$($minor),+].get(column)?, $($field: *[$($offset),+].get(column)?,)+ })
            }

            /// Returns a field by its name.
            pub fn field(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)+
                    _ => None,
                }
            }
        }
    };
}

pub mod debug_offsets;
mod tables;

pub use tables::Layout;

/// The versions that can be read.
pub const MIN_MINOR: u32 = 9;
pub const MAX_MINOR: u32 = 14;

/// Returns the layout of a version, for 3.14 that of 3.13, which the process' own offsets complete.
pub fn of_minor(minor: u32) -> Option<Layout> {
    let place = minor.checked_sub(MIN_MINOR)? as usize;
    match minor {
        // Its collector has other lists.
        MAX_MINOR => Some(Layout { minor, gc_generations: 0, ..Layout::of_column(place - 1)? }),
        _ => Layout::of_column(place),
    }
}
