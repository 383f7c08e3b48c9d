//! Where CPython's fields are. A version's layout is constant over its patch releases, so 3.9 to 3.12 have a table; from 3.13 on
//! the process describes itself (`debug_offsets`), and the table of 3.13 has the fields that it leaves out. Pure.

pub mod debug_offsets;
mod fields;
mod tables;

pub use fields::Layout;

/// The versions that can be read.
pub const MIN_MINOR: u32 = 9;
pub const MAX_MINOR: u32 = 14;

/// Returns the table of a version, for 3.14 that of 3.13, which the process' own offsets complete.
pub fn of_minor(minor: u32) -> Option<Layout> {
    match minor {
        9 => Some(tables::PYTHON_3_9),
        10 => Some(tables::PYTHON_3_10),
        11 => Some(tables::PYTHON_3_11),
        12 => Some(tables::PYTHON_3_12),
        13 => Some(tables::PYTHON_3_13),
        // Its collector has other lists.
        MAX_MINOR => Some(Layout { minor: MAX_MINOR, gc_generations: 0, ..tables::PYTHON_3_13 }),
        _ => None,
    }
}
