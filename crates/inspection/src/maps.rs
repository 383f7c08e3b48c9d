//! `/proc/PID/maps`: which files a process has mapped, and where. Pure: it reads text.

/// A file that is mapped, from the first to the last of its mappings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    pub path: String,
    /// The address of the file's first byte.
    pub start: u64,
    pub end: u64,
}

/// Lines that are read at most: the kernel's default limit of mappings is 65,530.
const MAX_LINES: usize = 100_000;

/// Returns the mapped files in the order of their addresses.
pub fn files(maps: &str) -> Vec<MappedFile> {
    let mut files: Vec<MappedFile> = Vec::new();
    for line in maps.lines().take(MAX_LINES) {
        let Some((start, end, offset, path)) = parts(line) else { continue };
        match files.last_mut() {
            // The other parts of a library follow its first one.
            Some(last) if last.path == path && offset > 0 => last.end = end,
            _ if offset == 0 => files.push(MappedFile { path: path.to_owned(), start, end }),
            _ => {}
        }
    }
    files
}

/// `7f..-7f.. r-xp 00001000 fd:01 1234   /usr/lib/libpython3.11.so.1.0 (deleted)`
fn parts(line: &str) -> Option<(u64, u64, u64, &str)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let path = fields.nth(2)?.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.starts_with('/').then_some((number(start)?, number(end)?, number(offset)?, path))
}

/// Returns the minor version in the names of a Python's files: 11 for `libpython3.11.so.1.0`, `python3.11` and
/// `_struct.cpython-311-x86_64-linux-gnu.so`. 3.9 and 3.10 have no symbol that says it.
pub fn minor_version(files: &[MappedFile]) -> Option<u32> {
    let name = |file: &MappedFile| file.path.rsplit('/').next().unwrap_or_default().to_owned();
    let after = |name: &str, words: &str| {
        let rest = name.split_once(words)?.1;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        digits.parse().ok()
    };
    let of_program = files.iter().map(name).find_map(|name| after(&name, "libpython3.").or_else(|| after(&name, "python3.")));
    of_program.or_else(|| files.iter().map(name).find_map(|name| after(&name, ".cpython-3")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d000000000-55d000001000 r--p 00000000 fd:01 10 /usr/bin/python3.11
55d000001000-55d000002000 r-xp 00001000 fd:01 10 /usr/bin/python3.11
55d000003000-55d000004000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 r--p 00000000 fd:01 11                         /opt/a b/libpython3.11.so.1.0 (deleted)
7f0000001000-7f0000005000 r-xp 00001000 fd:01 11                         /opt/a b/libpython3.11.so.1.0 (deleted)
7f0000006000-7f0000007000 rw-p 00000000 00:00 0
not a line
";

    #[test]
    fn the_parts_of_a_file_are_one() {
        let found = files(MAPS);
        let expected = [
            ("/usr/bin/python3.11", 0x55d0_0000_0000, 0x55d0_0000_2000),
            ("/opt/a b/libpython3.11.so.1.0", 0x7f00_0000_0000, 0x7f00_0000_5000),
        ];
        assert_eq!(found.iter().map(|file| (file.path.as_str(), file.start, file.end)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_version_is_in_the_names() {
        let minor = |path: &str| minor_version(&[MappedFile { path: path.to_owned(), start: 0, end: 0 }]);
        assert_eq!(minor("/usr/bin/python3.9"), Some(9));
        assert_eq!(minor("/lib/libpython3.10.so.1.0"), Some(10));
        assert_eq!(minor("/lib/_struct.cpython-312-x86_64-linux-gnu.so"), Some(12));
        assert_eq!(minor("/lib/libc.so.6"), None);
    }
}
