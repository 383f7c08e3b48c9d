//! Loads the library of an adapter and checks that it speaks this interface. It calls nothing of it but its one symbol. The
//! prototype's process runs it, and each worker of a language that can't be forked.

use std::ffi::{CStr, CString, c_void};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bolide_abi::{BOLIDE_ABI_VERSION, bolide_adapter, bolide_adapter_v1_function, bolide_host};

use crate::reasons;

/// The name of the symbol: it has the number of [`BOLIDE_ABI_VERSION`].
const SYMBOL: &CStr = c"bolide_adapter_v1";

/// The beginning of the name of the symbol in each version.
const ANY_SYMBOL: &str = "bolide_adapter_v";

/// The smallest size of a table: it has all members up to `abandon`.
const MIN_TABLE_BYTES: usize = offset_of!(bolide_adapter, abandon) + size_of::<usize>();

/// The longest name of a language in bytes.
const MAX_NAME_BYTES: usize = 100;

/// How many versions of the symbol are looked for, to say which one a library has.
const MAX_VERSIONS: u32 = 20;

/// An adapter that was loaded. It stays as long as the process.
#[derive(Clone, Copy)]
pub struct Adapter {
    /// Members that the adapter does not know are `None`.
    pub table: bolide_adapter,
}

// SAFETY: the name and the functions stay as they are as long as the process, and the functions say which thread may call them.
unsafe impl Sync for Adapter {}

impl Adapter {
    /// Loads a library, which gets the functions of the `host`.
    ///
    /// # Errors
    /// It can't be loaded, is not an adapter, or is one for another version: one sentence.
    pub fn load(path: &Path, host: &'static bolide_host) -> Result<Adapter, String> {
        let shown = path.display();
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| format!("{shown} is not a path"))?;
        // Libraries that the language loads later find the language's own symbols only if those are global.
        // SAFETY: the name ends with a 0. The code of the library runs here, as the configuration demands.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return Err(format!("{shown} can't be loaded: {}", loader_error()));
        }
        let Some(symbol) = symbol_of(library, SYMBOL) else { return Err(why_not(library, path)) };
        // SAFETY: the symbol of this name is a function of this type (bolide_app.h).
        let make = unsafe { std::mem::transmute::<*mut c_void, bolide_adapter_v1_function>(symbol) };
        // SAFETY: the table of the host lives as long as the process.
        let table = unsafe { make(host) };
        if table.is_null() {
            return Err(format!("{shown} does not start: {}", reasons::take()));
        }
        // SAFETY: the pointer is not null, and a table begins with these two members (bolide_app.h).
        let (version, size) = unsafe { ((*table).version, (*table).size) };
        let size = size as usize;
        if version != BOLIDE_ABI_VERSION || size < MIN_TABLE_BYTES {
            return Err(format!(
                "{shown} has a table of version {version} with {size} bytes, and this Bolide needs version {BOLIDE_ABI_VERSION} \
                    with {MIN_TABLE_BYTES} bytes or more: build it again with this version's bolide_app.h"
            ));
        }
        let mut own = MaybeUninit::<bolide_adapter>::zeroed();
        // SAFETY: the table says that `size` bytes are there. What it lacks of ours stays zero, which is `None` for functions.
        unsafe {
            std::ptr::copy_nonoverlapping(
                table.cast::<u8>(),
                own.as_mut_ptr().cast::<u8>(),
                size.min(size_of::<bolide_adapter>()),
            );
        }
        // SAFETY: all members are numbers, pointers and optional functions.
        let table = unsafe { own.assume_init() };
        let lacks = [("call", table.call.is_none()), ("load", table.load.is_none())];
        if let Some((function, _)) = lacks.iter().find(|(_, lacks)| *lacks) {
            return Err(format!("the table of {shown} lacks the function `{function}`"));
        }
        Ok(Adapter { table })
    }

    /// The language and its version.
    pub fn language(&self) -> String {
        if self.table.name.is_null() {
            return "a plugin".to_owned();
        }
        // SAFETY: the name ends with a 0 (bolide_app.h), and lives as long as the process.
        let name = unsafe { CStr::from_ptr(self.table.name) };
        String::from_utf8_lossy(name.to_bytes()).chars().filter(|char| !char.is_control()).take(MAX_NAME_BYTES).collect()
    }

    pub fn has(&self, flag: u32) -> bool {
        self.table.flags & flag != 0
    }
}

fn symbol_of(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is loaded, and the name ends with a 0.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// Why a library without the symbol is not an adapter of this version.
fn why_not(library: *mut c_void, path: &Path) -> String {
    let shown = path.display();
    let has =
        |version: &u32| CString::new(format!("{ANY_SYMBOL}{version}")).is_ok_and(|name| symbol_of(library, &name).is_some());
    match (1..MAX_VERSIONS).find(has) {
        Some(version) => format!(
            "{shown} is an adapter for version {version} of the interface, and this Bolide has version {BOLIDE_ABI_VERSION}: \
                build it again"
        ),
        None => format!("{shown} is not an adapter of Bolide: it does not export `bolide_adapter_v1`"),
    }
}

/// What the dynamic loader says of the last failure.
fn loader_error() -> String {
    // SAFETY: the text belongs to the loader, and stays until its next call in this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: as above; it ends with a 0.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
