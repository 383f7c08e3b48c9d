//! The options of Perl, whose adapter is the plugin `psgi`. Runs in the process that reads the configuration.

use crate::row::{OptionEntry, Reach, Setting, Value, absent, accepted, list, rows, set, supported};
use crate::topics::languages::plugins::{add_application, add_option, add_switch};
use crate::topics::watching::{self, ignore_import};

pub const ENTRIES: &[OptionEntry] = rows![
    /// The PSGI application: a file whose last value is a function, as `plackup` takes it. Its adapter is the plugin `psgi`,
    /// which `bolide plugin build psgi` makes, or Debian's package `bolide-psgi`.
    /// uWSGI: The number of the plugin in a uwsgi packet may be 0 or 5.
    /// Example: psgi = app.psgi
    supported("psgi", Setting::By(add_application)).takes(Value::Path, "").reach(Reach::Master),
    /// Offer `psgix.io`, the connection itself. Once the application has used it, it answers by itself.
    /// Example: psgi = app.psgi
    ///          psgi-enable-psgix-io = true
    supported("psgi-enable-psgix-io", Setting::By(add_switch)).takes(Value::Switch, "off").reach(Reach::Application),
    /// An argument of the application, which is an element of `@ARGV`.
    /// Example: psgi = app.psgi
    ///          perl-arg = --verbose
    list("perl-arg", Setting::By(add_option)).reach(Reach::Application),
    /// The arguments of the application, separated by spaces.
    /// Example: psgi = app.psgi
    ///          perl-args = --verbose --port 80
    supported("perl-args", Setting::By(add_option)).reach(Reach::Application),
    /// A Perl file that is executed before the application is loaded.
    /// Example: psgi = app.psgi
    ///          perl-exec = settings.pl
    list("perl-exec", Setting::By(add_option)).takes(Value::Path, "").reach(Reach::Application),
    /// A Perl file that is executed in each worker before it serves.
    /// Example: psgi = app.psgi
    ///          perl-exec-post-fork = connect.pl
    list("perl-exec-post-fork", Setting::By(add_option)).takes(Value::Path, "").reach(Reach::Application),
    /// A directory with modules, as `local::lib` and `cpanm --local-lib` make it.
    /// Example: psgi = app.psgi
    ///          perl-local-lib = /srv/shop/local
    supported("perl-local-lib", Setting::By(add_option)).takes(Value::Path, "").reach(Reach::Application),
    /// Reload when a file that the application has loaded changes, or the configuration. 0 means off.
    /// uWSGI: A thread of a worker checks at this interval. In Bolide the kernel tells of changes.
    /// Example: psgi = app.psgi
    ///          perl-auto-reload = 1
    supported("perl-auto-reload", Setting::By(watching::watch_imports))
        .takes(Value::Decimal { most: 3600, unit: "seconds" }, "0").reach(Reach::Master),
    /// A file that `perl-auto-reload` does not watch.
    /// Example: psgi = app.psgi
    ///          perl-auto-reload = 1
    ///          perl-auto-reload-ignore = /srv/shop/generated.pl
    list("perl-auto-reload-ignore", set!(|draft, _, pair| ignore_import(draft, pair)?)).reach(Reach::Master),
    /// Leave `$SIG{__DIE__}` to the application.
    /// Why: Bolide never sets it
    accepted("perl-no-die-catch", Value::Switch),
    /// Run the application without Plack's `Plack::Util`.
    /// Why: Plack is never needed
    accepted("perl-no-plack", Value::Switch),
    /// Print Perl's version and exit.
    /// Instead: run `perl -v`
    absent("perl-version", Value::Switch),
    /// Start a Perl shell instead of serving.
    /// Instead: run `perl -de 0`
    absent("plshell", Value::Special),
    /// Start one Perl shell instead of serving.
    /// Instead: run `perl -de 0`
    absent("plshell-oneshot", Value::Switch),
];
