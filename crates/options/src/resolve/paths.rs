//! Paths of a configuration. It knows no option.

use std::path::{Path, PathBuf};

/// The same path without `.` and doubled or trailing slashes. `..` stays: what it means depends on links.
pub fn normalized(path: &Path) -> PathBuf {
    path.components().collect()
}
