//! Rows of static files, which are served without the application. Pure data.

use bolide_contract::files::{ExpirySubject, MapKind, Missing};

use crate::resolve::files;
use crate::resolve::files::FilesDraft;
use crate::row::{OptionEntry, Setting, Value, set};
use crate::values;

/// Values of `static-serve`.
const SERVES: [(&str, Missing); 2] = [("fallback", Missing::Fallback), ("only", Missing::Only)];

const ONE_FIELD: &str = "uWSGI sends a field for each type of rule that matches; here the first rule that matches sets the only field, in the order file, path, URI, type.";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("static-map", set!(|draft, _, pair| files::add_map(draft, MapKind::Replace, pair)?), Value::Special, "", "Answers requests below a path with the files of a folder, or with a single file. Paths without a file go to the application (see `static-serve`).").several()
        .uwsgi("In uWSGI `/static` also matches `/staticky`; here a path ends at the end of a component. A folder without a trailing slash is redirected, while uWSGI serves its index, and names that begin with a dot go to the application (see `static-dot-files`).")
        .example("static-map = /static=/srv/shop/static\nstatic-map = /favicon.ico=/srv/shop/static/favicon.ico"),
    OptionEntry::supported("static-map2", set!(|draft, _, pair| files::add_map(draft, MapKind::Append, pair)?), Value::Special, "", "Like `static-map`, but the whole path is looked up in the folder: `/static/a.css` is `FOLDER/static/a.css`.").several()
        .example("static-map2 = /static=/srv/shop"),
    OptionEntry::supported("check-static", set!(|draft, _, pair| draft.of::<FilesDraft>().maps.push((MapKind::Check, String::new(), values::text(pair)?, pair.location.clone()))), Value::Path, "", "Looks for every path in this folder first; missing files go to the application.").several()
        .example("check-static = /srv/shop/public"),
    OptionEntry::supported("check-static-docroot", Setting::Switch(|draft| &mut draft.of::<FilesDraft>().document_root), Value::Switch, "off", "Looks for every path in the folder that the front server names in DOCUMENT_ROOT.")
        .example("check-static-docroot = true"),
    OptionEntry::supported("static-serve", set!(|draft, _, pair| draft.of::<FilesDraft>().missing = files::word(pair, &SERVES)?), Value::Special, "fallback", "Determines how paths below a `static-map` without a file are answered: `fallback` means the application; `only` means the server, with 404, or 405 for methods that files do not support.")
        .example("static-serve = only"),
    OptionEntry::supported("static-index", set!(|draft, _, pair| draft.of::<FilesDraft>().index.push(files::file_name(pair)?)), Value::List, "", "A file with this name is served for its folder; of several, the first that exists.").example("static-index = index.html"),
    OptionEntry::supported("static-skip-ext", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().skip), Value::List, "", "Paths and files with this extension are never served from a folder.").example("static-skip-ext = .php"),
    OptionEntry::supported("static-safe", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().safe), Value::List, "", "A folder, or a file, to which symbolic links out of a served folder may point.")
        .uwsgi("uWSGI compares the text; here only complete folder names match.")
        .example("static-safe = /srv/shared"),
    OptionEntry::supported("static-dot-files", Setting::Switch(|draft| &mut draft.of::<FilesDraft>().dot_files), Value::Switch, "off", "Also serves names that begin with a dot. `.well-known` is always served.")
        .example("static-dot-files = true"),
    OptionEntry::supported("static-expires", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::File, false)?)), Value::List, "", "`PATTERN SECONDS`: sets `Expires` on files whose own path matches the pattern.")
        .uwsgi(ONE_FIELD)
        .example("static-expires = /images/.*\\.png$ 3600"),
    OptionEntry::supported("static-expires-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::File, true)?)), Value::List, "", "Like `static-expires`, counted from the file's last modification.")
        .example("static-expires-mtime = \\.css$ 86400"),
    OptionEntry::supported("static-expires-path-info", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::Path, false)?)), Value::List, "", "Like `static-expires`, for the request's PATH_INFO.")
        .example("static-expires-path-info = ^/static/ 3600"),
    OptionEntry::supported("static-expires-path-info-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::Path, true)?)), Value::List, "", "Like `static-expires-path-info`, counted from the file's last modification.")
        .example("static-expires-path-info-mtime = ^/static/ 3600"),
    OptionEntry::supported("static-expires-uri", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::Uri, false)?)), Value::List, "", "Like `static-expires`, for the request's REQUEST_URI, including the query.")
        .example("static-expires-uri = \\?v= 31536000"),
    OptionEntry::supported("static-expires-uri-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::Uri, true)?)), Value::List, "", "Like `static-expires-uri`, counted from the file's last modification.")
        .example("static-expires-uri-mtime = \\?v= 31536000"),
    OptionEntry::supported("static-expires-type", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::Type, false)?)), Value::List, "", "`TYPE=SECONDS`: sets `Expires` on files of this MIME type.")
        .uwsgi(ONE_FIELD)
        .example("static-expires-type = image/png=3600"),
    OptionEntry::supported("static-expires-type-mtime", set!(|draft, _, pair| draft.of::<FilesDraft>().expires.push(files::expiry(pair, ExpirySubject::Type, true)?)), Value::List, "", "Like `static-expires-type`, counted from the file's last modification.")
        .example("static-expires-type-mtime = image/png=3600"),
    OptionEntry::supported("static-cache-control", set!(|draft, _, pair| draft.of::<FilesDraft>().cache_control = Some(files::header_value(pair)?)), Value::Text, "", "The value of `Cache-Control` on all files.").example("static-cache-control = public, max-age=300"),
    OptionEntry::supported("static-immutable", set!(|draft, _, pair| draft.of::<FilesDraft>().immutable.push(files::pattern(pair, &values::text(pair)?)?)), Value::List, "", "Files whose path matches this pattern never change, such as those with a hash in their names: clients keep them for a year without revalidation.")
        .example("static-immutable = \\.[0-9a-f]{8,}\\.(css|js)$"),
    OptionEntry::supported("static-gzip-all", Setting::Switch(|draft| &mut draft.of::<FilesDraft>().compressed.all), Value::Switch, "off", "Sends the `.br`, `.zst` or `.gz` beside a file to clients that accept it.")
        .uwsgi("uWSGI 2.0 supports `.gz` only, and sends no `Vary`.")
        .example("static-gzip-all = true"),
    OptionEntry::supported("static-gzip-dir", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().compressed_folders), Value::List, "", "Like `static-gzip-all`, for files whose own path begins with this.")
        .uwsgi("A relative path, which has no effect in uWSGI, is a path below `chdir`.")
        .example("static-gzip-dir = /srv/shop/static/CACHE"),
    OptionEntry::supported("static-gzip-ext", Setting::Texts(|draft| &mut draft.of::<FilesDraft>().compressed.suffixes), Value::List, "", "Like `static-gzip-all`, for files whose own path ends with this.").example("static-gzip-ext = .js"),
    OptionEntry::supported("static-gzip", set!(|draft, _, pair| draft.of::<FilesDraft>().compressed.patterns.push(files::pattern(pair, &values::text(pair)?)?)), Value::List, "", "Like `static-gzip-all`, for files whose own path matches this pattern.")
        .example("static-gzip = /static/.*\\.(css|js)$"),
    OptionEntry::supported("mime-file", Setting::LocatedTexts(|draft| &mut draft.of::<FilesDraft>().mime_files), Value::Path, "", "A file of media types in the format of /etc/mime.types; they take precedence over the built-in ones.")
        .uwsgi("uWSGI has no built-in types and reads /etc/mime.types if it exists.")
        .example("mime-file = /srv/shop/mime.types"),
    OptionEntry::supported("static-charset", Setting::By(files::set_charset), Value::Text, "", "The charset of text files. Without it none is stated, because only their author knows it.").example("static-charset = utf-8"),
    OptionEntry::supported("file-serve-mode", Setting::By(files::set_mode), Value::Special, "", "Names the file to the front server, which then sends it: `x-sendfile`, or `nginx` (`x-accel-redirect`).")
        .example("file-serve-mode = nginx"),
    OptionEntry::supported("x-sendfile", Setting::LocatedTexts(|draft| &mut draft.of::<FilesDraft>().sendfile_paths), Value::List, "", "The application may name a file in this folder with the header `X-Sendfile`; it is sent instead of a body, with its validators and ranges.")
        .example("x-sendfile = /srv/shop/private"),
    OptionEntry::supported("x-accel-redirect", Setting::By(files::add_sendfile_location), Value::List, "", "`/PATH=FOLDER`: the application may name a file in the folder by a path that begins with this, in the header `X-Accel-Redirect`.")
        .example("x-accel-redirect = /protected=/srv/shop/private"),
    OptionEntry::supported("static-cache-files", Setting::Size(|draft| &mut draft.of::<FilesDraft>().cache.files), Value::Number { least: 0, most: 1_000_000, unit: "files" }, "1024", "The number of files that a worker caches. They are checked again after a second; 0 looks at the disk for each request.")
        .example("static-cache-files = 5000"),
    OptionEntry::supported("static-cache-memory", set!(|draft, row, pair| draft.of::<FilesDraft>().cache.memory_bytes = draft.bounded(row, pair)?.unsigned_abs()), Value::Number { least: 0, most: 4_294_967_296, unit: "bytes" }, "16777216", "Bytes of small files (at most 16 KiB each) that a worker keeps in memory; 0 keeps none.")
        .example("static-cache-memory = 67108864"),
    OptionEntry::accepted("static-cache-paths", Value::Special, "Caches the location of files for this time.", "each worker remembers the files that it has found, and looks again after a second; a path from memory that the application can write would not be below its folder for certain"),
    OptionEntry::accepted("static-cache-paths-name", Value::Special, "The cache for the location of files.", "each worker has its own, which the application can't write"),
    OptionEntry::accepted("honour-range", Value::Switch, "Answers requests for a part of a file.", "they are always answered"),
];
