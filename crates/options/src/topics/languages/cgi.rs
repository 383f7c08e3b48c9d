//! Resolves the options of CGI to settings. It looks for the configured files, and opens none. Runs in the process that reads the
//! configuration.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{Cgi, CgiPlace, Threads, Workers};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, SECONDS, Setting, Value, accepted, field, list, on, refused, rows, supported};
use crate::topics::processes::ProcessesDraft;

/// The option of a program, or of a directory of programs.
pub const PLACE: &str = "cgi";

/// How long a program may take without output, in milliseconds: uWSGI's default.
const TIMEOUT_MS: u64 = 60_000;

/// Where helpers are found if the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// An extension and a program.
const HELPER: Value = Value::Form("EXTENSION=PROGRAM");

pub const ENTRIES: &[OptionEntry] = rows![
    /// Execute a program of this directory for each request (CGI, RFC 3875). The first component of the path that is a file is
    /// the program, and the rest is PATH_INFO. A path that is a file is a program that gets all requests. With `PREFIX=` in
    /// front, only paths below this prefix count. A file must be executable, unless `cgi-helper` executes it.
    /// uWSGI: A prefix of uWSGI may end within a component. In Bolide `/cgi-bin` does not match `/cgi-binary`. uWSGI passes a
    /// query without `=` as arguments of the program, and Bolide does not.
    /// Example: cgi = /cgi-bin=/srv/shop/cgi-bin
    ///          cgi = /srv/shop/cgi-bin/app.cgi
    list("cgi", Setting::LocatedTexts(field!(CgiDraft.places))).takes(Value::Form("[PREFIX=]PATH"), "")
        .reach(Reach::Application),
    /// Execute files whose names end like this with a program, which is found in PATH. They need not be executable.
    /// uWSGI: A `sym://` function of a library is not supported.
    /// Example: cgi = /srv/shop/cgi-bin
    ///          cgi-helper = .sh=sh
    list("cgi-helper", Setting::By(add_helper)).takes(HELPER, "").reach(Reach::Application),
    /// Only files whose names end like this are executed. Others get 403.
    /// Example: cgi = /srv/shop/cgi-bin
    ///          cgi-allowed-ext = .cgi
    list("cgi-allowed-ext", Setting::Texts(field!(CgiDraft.allowed_extensions))).reach(Reach::Application),
    /// The file that answers for a directory. Of several, the first one that exists does.
    /// Example: cgi = /srv/shop/cgi-bin
    ///          cgi-index = index.cgi
    list("cgi-index", Setting::Texts(field!(CgiDraft.indexes))).reach(Reach::Application),
    /// The longest time that a program may take without writing anything. Before its header block the client gets 504, and after
    /// that the answer is cut off. The program and all that it has started are killed. The time that a program waits for its
    /// client does not count.
    /// Example: cgi = /srv/shop/cgi-bin
    ///          cgi-timeout = 300
    supported("cgi-timeout", Setting::Seconds(field!(CgiDraft.timeout_ms))).takes(SECONDS, "60").reach(Reach::Application),
    /// A variable that programs do not get.
    /// Example: cgi = /srv/shop/cgi-bin
    ///          cgi-unset = HTTP_COOKIE
    list("cgi-unset", Setting::Texts(field!(CgiDraft.unset))).reach(Reach::Application),
    /// A directory that links in the directory of `cgi` may lead to. Other links that leave it get 403.
    /// Example: cgi = /srv/shop/cgi-bin
    ///          cgi-safe = /srv/shared-cgi
    list("cgi-safe", Setting::Texts(field!(CgiDraft.safe))).takes(Value::Path, "").reach(Reach::Application),
    /// A program goes on if its client has left, until it ends or `cgi-timeout` has passed.
    /// uWSGI: uWSGI does not kill a program after its time limit either.
    /// Example: cgi = /srv/shop/cgi-bin
    ///          cgi-do-not-kill-on-error = true
    on("cgi-do-not-kill-on-error", Setting::Switch(field!(CgiDraft.outlives_client))).reach(Reach::Application),
    /// The size of the buffer for a program's output.
    /// Why: output is passed on in parts of up to 64 KiB, and a header block may have 64 KiB
    accepted("cgi-buffer-size", Value::Special),
    /// Close a program's standard input at the end of the body.
    /// Why: it is always closed there
    accepted("cgi-close-stdin-on-eof", Value::Special),
    /// The number of attempts to reap a program.
    /// Why: the kernel reports the end of a program, so no attempt is in vain
    accepted("cgi-async-max-attempts", Value::Special),
    /// Resolve the paths of `cgi` at startup.
    /// Why: a path is resolved once and looked at again each second
    accepted("cgi-optimize", Value::Special),
    /// Turn PATH_INFO off.
    /// Why: uWSGI reads this option and does not use it either
    accepted("cgi-path-info", Value::Special),
    /// Execute files below the DOCUMENT_ROOT of the request.
    /// Instead: name the directory with `cgi`, because a request must not choose what is executed
    refused("cgi-from-docroot", Value::Switch),
    /// Load a library whose functions execute programs.
    /// Instead: name a program with `cgi-helper`
    refused("cgi-loadlib", Value::List),
];

/// The options of CGI, as written.
#[derive(Default)]
pub struct CgiDraft {
    places: Vec<(String, Location)>,
    helpers: Vec<CgiHelper>,
    allowed_extensions: Vec<String>,
    indexes: Vec<String>,
    unset: Vec<String>,
    safe: Vec<String>,
    timeout_ms: Option<u64>,
    outlives_client: bool,
}

/// An extension, the program that executes its files, and where they were written.
struct CgiHelper {
    extension: String,
    program: String,
    location: Location,
}

fn add_helper(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = crate::values::text(pair)?;
    let wrong = |message: String, advice: &str| Diagnostic::error(Some(&pair.location), message).advise(advice);
    let Some((extension, program)) =
        text.split_once('=').filter(|(extension, program)| !extension.is_empty() && !program.is_empty())
    else {
        return Err(wrong(format!("`{} = {text}` lacks its program", pair.key), "write `.pl=perl`"));
    };
    if program.starts_with("sym://") {
        let message = format!("`{} = {text}`: functions of libraries are not supported", pair.key);
        return Err(wrong(message, "name a program that executes the file, such as `perl`"));
    }
    let helper = CgiHelper { extension: extension.to_owned(), program: program.to_owned(), location: pair.location.clone() };
    draft.of::<CgiDraft>().helpers.push(helper);
    Ok(())
}

impl CgiDraft {
    /// `None`: the configuration has no programs. With `is_jailed` the paths are within another root, which is not looked at.
    pub fn complete(self, is_jailed: bool, context: &mut Context) -> Option<Cgi> {
        let places: Vec<CgiPlace> = self.places.iter().map(|(text, location)| place(text, location, context)).collect();
        if places.is_empty() {
            return None;
        }
        if !is_jailed {
            for (place, (_, location)) in places.iter().zip(&self.places) {
                check_place(&place.path, location, context);
            }
            let search = search(context);
            for helper in &self.helpers {
                check_helper(helper, &search, context);
            }
        }
        let safe = self.safe.iter().map(|path| context.absolute(path)).collect();
        Some(Cgi {
            places,
            helpers: self.helpers.into_iter().map(|helper| (helper.extension, helper.program)).collect(),
            allowed_extensions: self.allowed_extensions,
            indexes: self.indexes,
            safe,
            unset: self.unset,
            timeout_ms: self.timeout_ms.unwrap_or(TIMEOUT_MS),
            outlives_client: self.outlives_client,
            programs: Cgi::PROGRAMS,
        })
    }
}

/// Sets how many programs a worker executes at the same time. As in uWSGI, a worker of several threads executes several. It has
/// one thread of its own, whatever their number.
pub fn share_programs(cgi: &mut Cgi, processes: &ProcessesDraft, workers: &mut Workers) {
    cgi.programs = match (processes.threads, workers.processes_chosen) {
        (Some(Threads::Fixed(count)), _) => count.max(1),
        (None, true) => 1,
        (Some(Threads::Auto), _) | (None, false) => Cgi::PROGRAMS,
    };
    workers.threads = Threads::Fixed(1);
}

fn place(text: &str, location: &Location, context: &Context) -> CgiPlace {
    let (mount, path) = text.split_once('=').unwrap_or(("", text));
    CgiPlace { mount: mount.to_owned(), path: context.absolute(path), origin: location.to_string() }
}

fn check_place(path: &Path, location: &Location, context: &mut Context) {
    if path.exists() {
        return;
    }
    let message = format!("`cgi`: there is no file or directory `{}`", path.display());
    let advice = "correct the path, which is a program or a directory of programs";
    context.diagnostics.push(Diagnostic::error(Some(location), message).advise(advice).local());
}

/// The value of PATH that programs will have.
fn search(context: &Context) -> String {
    let configured = context.read.effects.iter().rev().find_map(|pair| {
        let value = pair.value.as_deref().filter(|_| pair.key == "env")?;
        value.strip_prefix("PATH=").map(str::to_owned)
    });
    let own = || context.host.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    configured.or_else(own).unwrap_or_else(|| DEFAULT_PATH.to_owned())
}

fn check_helper(helper: &CgiHelper, search: &str, context: &mut Context) {
    let is_program =
        |path: PathBuf| path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
    let is_found = match helper.program.contains('/') {
        true => is_program(helper.program.clone().into()),
        false => search.split(':').any(|directory| is_program(Path::new(directory).join(&helper.program))),
    };
    if is_found {
        return;
    }
    let message = format!("`cgi-helper`: there is no program `{}` for {} in PATH", helper.program, helper.extension);
    let advice = "install it, or write its whole path";
    context.diagnostics.push(Diagnostic::error(Some(&helper.location), message).advise(advice).local());
}
