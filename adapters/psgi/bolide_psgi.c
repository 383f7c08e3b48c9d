// Applications in Perl for Bolide: PSGI 1.1, with the extensions and the package `uwsgi` that uWSGI offers.
// bolide-build: flags $(perl -MExtUtils::Embed -e ccopts -e ldopts)
// bolide-build: debian libperl-dev
//
// The prototype makes one interpreter and loads the applications into it. Workers are forks of it, so they share this memory.
// A worker serves one request at a time. The exception is an answer whose client is slow: it is suspended, and its worker
// serves others until the client has read.
//
// Perl leaves C code by longjmp when something dies or exits. So each step of a request is an XS function that Perl calls in
// an `eval`, and that calls functions of the host without a frame of Perl in between. `protect` also catches `exit`.
//
// It knows Bolide only by bolide_app.h. Prototypes and workers run it.

#define PERL_NO_GET_CONTEXT
#include <EXTERN.h>
#include <perl.h>
#include <perliol.h>
#include <XSUB.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bolide_app.h"

enum {
    MIN_STATUS = 100,
    MAX_STATUS = 999,
    MAX_LOGGED_BYTES = 8192,  // of an unfinished line of psgi.errors
    MAX_NAMES = 256,          // names of variables whose Perl strings are kept
    MAX_NAME_BYTES = 64,      // of such a name
    MAX_FRAMES = 32,          // of a stack in the log
    MAX_FIELDS = 64,          // of an informational response
    MAX_SIGNALS = 65,
    MIN_BUCKETS = 64,         // of the hash of a request
};

// A request and its answer. It lies on the stack of `call`, and moves to the heap while the answer is suspended.
struct exchange {
    bolide_request *request;  // NULL after `call`
    bolide_answer *answer;
    HV *env;
    SV *input, *body, *part;
    SSize_t index;    // of the part of an array that is sent next
    size_t sent;      // how much of this part was sent
    uint64_t length;  // the Content-Length of the application, or UINT64_MAX
    uint32_t outcome;
    bool is_fine;       // the step has come to its end
    bool has_head;      // the application has answered
    bool is_streaming;  // it writes the body by a writer
    bool is_complete;   // the rest is the host's task
    bool is_gone;       // the client has disconnected
};

static const bolide_host *host;
static PerlInterpreter *my_perl;
static struct exchange *current;  // the request of the step that runs
static UV serial;                 // of this request, so that a responder of an earlier one is recognized
static AV *applications;
static CV *step_serve, *step_continue, *step_conclude, *step_call, *step_signals;
static SV *version_array, *errors_handle, *logger_code, *inform_code, *line_size, *empty_input;
static volatile bool is_forked;  // by the application, so that Bolide does not know this process
static bool is_multiprocess, has_io_option, is_destroyed;
static char error_line[MAX_LOGGED_BYTES];
static size_t error_line_size;
static struct {
    char name[MAX_NAME_BYTES];
    size_t size;
    SV *key;
} names[MAX_NAMES];

// What `step_call` calls.
static struct {
    const char *function;
    SV *arguments[2];
    int count;
} called;

static const char PRELUDE[] =
    "package Bolide::PSGI;\n"
    "use strict;\n"
    "use warnings;\n"
    "require IO::Handle; require IO::File; require Carp; require PerlIO::scalar; require Cwd; require Scalar::Util;\n"
    "our ($worker, $software, @postfork, @postfork_files, @atexit) = (0, '');\n"
    "STDOUT->autoflush(1);\n"
    // Any error value becomes a text, even if its own conversion dies.
    "sub describe {\n"
    "    my ($error) = @_;\n"
    "    local ($@, $SIG{__DIE__});\n"
    "    my $text = eval { \"$error\" };\n"
    "    return $text if defined $text && length $text;\n"
    "    return 'an error without a text' . (ref $error ? ', of the class ' . ref $error : '');\n"
    "}\n"
    "sub run_file {\n"
    "    my ($path) = @_;\n"
    "    my $file = $path =~ m{^/} ? $path : Cwd::getcwd() . \"/$path\";\n"
    "    die \"$path is a directory\\n\" if -d $file;\n"
    "    open(my $handle, '<', $file) or die \"$path can't be read: $!\\n\";\n"
    "    close $handle;\n"
    "    (my $name = $file) =~ s/([^A-Za-z0-9_])/sprintf '_%2x', ord $1/eg;\n"
    "    local $@;\n"
    // The names of packages are those of Plack, as tools that read traces expect them.
    "    my $error;\n"
    "    my $value = eval \"package Plack::Sandbox::$name; my \\$value = do \\$file; \\$error = \\$@; \\$value\";\n"
    "    die $error if !defined $value && (ref $error || length $error);\n"
    "    return $value;\n"
    "}\n"
    "sub load {\n"
    "    my ($path) = @_;\n"
    "    set_program($path =~ m{^/} ? $path : Cwd::getcwd() . \"/$path\");\n"
    "    my $app = run_file($path);\n"
    "    $app = $app->to_app if Scalar::Util::blessed($app) && Scalar::Util::reftype($app) ne 'CODE' && $app->can('to_app');\n"
    "    my $code = ref $app ? eval { \\&$app } : undef;\n"
    "    die \"$path must return a code reference (PSGI): it returns \" . (!defined $app ? 'undef' : ref $app ? 'a reference ('\n"
    "        . ref($app) . ')' : 'a text or a number') . \"\\n\" unless $code;\n"
    "    die \"$path has started threads, which can't be forked\\n\" if $INC{'threads.pm'} && threads->list;\n"
    "    add_application($code);\n"
    "}\n"
    "sub load_watched {\n"
    "    my ($path) = @_;\n"
    "    my $is_loaded = eval { load($path); 1 };\n"
    "    my $error = $@;\n"
    // A file that can't be loaded is watched too, because its next version may be right.
    "    watch($_) for grep { defined && !ref && -f } $path, values %INC;\n"
    "    die $error unless $is_loaded;\n"
    "}\n"
    "sub execute { run_file(@_); return }\n"
    "sub local_lib { require lib; lib->import(\"$_[0]/lib/perl5\") }\n"
    "sub arguments { push @ARGV, @_ }\n"
    "sub after_fork {\n"
    "    $worker = $_[0];\n"
    "    $_->() for @postfork;\n"
    "    run_file($_) for @postfork_files;\n"
    "}\n"
    "sub execute_after_fork { push @postfork_files, @_ }\n"
    "sub at_exit { for my $hook (splice @atexit) { eval { $hook->(); 1 } or write_log(describe($@)) } }\n"
    "sub make_socket {\n"
    "    require IO::Socket;\n"
    "    my $socket = IO::Socket->new_from_fd($_[0], 'r+') or return;\n"
    "    $socket->blocking(1);\n"
    "    $socket->autoflush(1);\n"
    "    return $socket;\n"
    "}\n"
    "our $logger = sub { my ($entry) = @_; write_log(($entry->{level} // 'info') . ': ' . ($entry->{message} // '')) };\n"
    "open our $errors, '>&', \\*STDERR or die \"psgi.errors can't be opened: $!\\n\";\n"
    "$errors->autoflush(1);\n"
    "tie *$errors, 'Bolide::PSGI::Errors';\n"
    "package Bolide::PSGI::Errors;\n"
    "sub TIEHANDLE { bless [], shift }\n"
    "sub PRINT { shift; Bolide::PSGI::write_error(join($, // '', map $_ // '', @_) . ($\\ // '')) }\n"
    "sub PRINTF { shift; my $format = shift; Bolide::PSGI::write_error(sprintf $format, @_) }\n"
    "sub WRITE {\n"
    "    my (undef, $text, $size, $offset) = @_;\n"
    "    Bolide::PSGI::write_error(substr $text, $offset // 0, $size // length $text);\n"
    "    return $size // length $text;\n"
    "}\n"
    "sub FILENO { 2 }\n"
    "sub BINMODE { 1 }\n"
    "sub CLOSE { 1 }\n"
    "package uwsgi;\n"
    "our $AUTOLOAD;\n"
    "sub version { $Bolide::PSGI::software }\n"
    "sub worker_id { $Bolide::PSGI::worker }\n"
    "sub log { Bolide::PSGI::write_log(join '', map $_ // '', @_) }\n"
    "sub postfork { hook(\\@Bolide::PSGI::postfork, postfork => @_) }\n"
    "sub atexit { hook(\\@Bolide::PSGI::atexit, atexit => @_) }\n"
    "sub hook {\n"
    "    my ($hooks, $name, $code) = @_;\n"
    "    Carp::croak(\"uwsgi::$name expects a code reference\") unless (Scalar::Util::reftype($code) // '') eq 'CODE';\n"
    "    push @$hooks, $code;\n"
    "    return 1;\n"
    "}\n"
    "sub AUTOLOAD { Carp::croak(\"$AUTOLOAD is not supported with Perl\") }\n"
    "1;\n";

static void explain(const char *reason) { host->explain(reason, strlen(reason)); }

// Ends a process that the application has forked, when it leaves the application. It must not use the connections.
static void end_child(int status) {
    PerlIO_flush(NULL);
    _exit(status);
}

// Calls a step in an `eval`. Returns false if the application has called `exit`.
static bool protect(CV *step) {
    I32 scope = PL_scopestack_ix;
    int jumped;
    dJMPENV;
    JMPENV_PUSH(jumped);
    if (!jumped) {
        ENTER;
        SAVETMPS;
        {
            dSP;
            PUSHMARK(SP);
            call_sv((SV *)step, G_VOID | G_DISCARD | G_EVAL);
        }
        FREETMPS;
        LEAVE;
    } else {
        while (PL_scopestack_ix > scope) LEAVE;
        FREETMPS;
    }
    JMPENV_POP;
    return !jumped;
}

XS_INTERNAL(call_function) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    SP -= items;
    const char *function = called.function;
    called.function = NULL;
    PUSHMARK(SP);
    for (int i = 0; i < called.count; i++) XPUSHs(sv_2mortal(called.arguments[i]));
    PUTBACK;
    called.count = 0;
    call_pv(function, G_VOID | G_DISCARD);
    called.function = function;
    XSRETURN_EMPTY;
}

// Returns the text of `$@` in UTF-8. It is valid until temporary values are freed.
static const char *error_text(STRLEN *size) {
    SV *error = sv_2mortal(newSVsv(ERRSV));
    // Without the prelude there is no such function, and the error is a text.
    if (!get_cv("Bolide::PSGI::describe", 0)) return SvPVutf8(error, *size);
    dSP;
    PUSHMARK(SP);
    XPUSHs(error);
    PUTBACK;
    int count = call_pv("Bolide::PSGI::describe", G_SCALAR | G_EVAL);
    SPAGAIN;
    SV *text = count > 0 ? newSVsv(POPs) : newSVsv(error);
    PUTBACK;
    sv_2mortal(text);
    return SvPVutf8(text, *size);
}

// Logs the text of `$@`, which has ended a step of a request, or something else.
static void log_failure(const struct exchange *x) {
    ENTER;
    SAVETMPS;
    STRLEN size;
    const char *text = error_text(&size);
    if (x) host->log_error(x->request, text, size);
    else host->log(text, size);
    FREETMPS;
    LEAVE;
}

// Calls a function of the prelude, which takes the arguments. Returns 0, or -1 with an explanation of `what` failed.
static int call_prelude(const char *function, SV *first, const char *while_what) {
    called.function = function;
    called.arguments[0] = first;
    called.count = first ? 1 : 0;
    bool is_back = protect(step_call);
    if (is_forked) end_child(STATUS_EXIT);
    if (!is_back) {
        char text[128];
        int size = snprintf(text, sizeof text, "the application has called exit(%d) %s", (int)STATUS_EXIT, while_what);
        host->explain(text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
        return -1;
    }
    if (called.function) return 0;
    ENTER;
    SAVETMPS;
    STRLEN size;
    const char *text = error_text(&size);
    size_t first_line = strcspn(text, "\n");
    if (first_line + 1 < size) host->log(text, size);
    host->explain(text, first_line);
    FREETMPS;
    LEAVE;
    return -1;
}

XS_INTERNAL(watch_file) {
    dXSARGS;
    STRLEN size;
    if (items != 1) XSRETURN_EMPTY;
    const char *path = SvPVbyte(ST(0), size);
    host->watch(path, size);
    XSRETURN_EMPTY;
}

XS_INTERNAL(add_application) {
    dXSARGS;
    if (items == 1) av_push(applications, newSVsv(ST(0)));
    XSRETURN_EMPTY;
}

// Sets $0 without the magic that renames the process.
XS_INTERNAL(set_program) {
    dXSARGS;
    if (items == 1) sv_setsv_nomg(GvSV(gv_fetchpvs("0", GV_ADD | GV_NOTQUAL, SVt_PV)), ST(0));
    XSRETURN_EMPTY;
}

XS_INTERNAL(log_text) {
    dXSARGS;
    STRLEN size;
    const char *text = items ? SvPVutf8(ST(0), size) : NULL;
    if (text) host->log(text, size);
    XSRETURN_EMPTY;
}

static void flush_error_line(void) {
    if (error_line_size) host->log(error_line, error_line_size);
    error_line_size = 0;
}

// Writes what is printed to psgi.errors. A line is kept until its end comes, because the log consists of lines.
XS_INTERNAL(write_error) {
    dXSARGS;
    STRLEN size = 0;
    const char *text = items ? SvPVutf8(ST(0), size) : "";
    while (size) {
        const char *end = memchr(text, '\n', size);
        size_t part = end ? (size_t)(end - text) : size;
        if (part > sizeof error_line - error_line_size) part = sizeof error_line - error_line_size;
        memcpy(error_line + error_line_size, text, part);
        error_line_size += part;
        bool is_end = end == text + part;
        if (is_end && !error_line_size) host->log("", 0);
        if (is_end || error_line_size == sizeof error_line) flush_error_line();
        text += part + is_end;
        size -= part + is_end;
    }
    XSRETURN_YES;
}

static const char *kind_of(pTHX_ SV *value) {
    if (!SvOK(value)) return "undef";
    if (!SvROK(value)) return "a text or a number";
    return form("a reference (%s)", sv_reftype(SvRV(value), 1));
}

// Returns the bytes of a text. A text with characters above 255 is not a text of bytes.
static const char *bytes_of(pTHX_ SV *value, STRLEN *size, const char *what) {
    if (SvROK(value) && !SvAMAGIC(value)) croak("%s is %s, and must be a text\n", what, kind_of(aTHX_ value));
    const char *bytes = SvPV(value, *size);
    if (!SvUTF8(value)) return bytes;
    SV *copy = newSVpvn_flags(bytes, *size, SVs_TEMP | SVf_UTF8);
    if (!sv_utf8_downgrade(copy, TRUE)) croak("Wide character in %s\n", what);
    return SvPV(copy, *size);
}

static void set_head(pTHX_ struct exchange *x, SV *status, SV *headers) {
    SvGETMAGIC(status);
    IV code = SvOK(status) && looks_like_number(status) ? SvIV(status) : 0;
    if (code < MIN_STATUS || code > MAX_STATUS)
        croak("the status is %s, and must be a number such as 200\n",
              SvOK(status) && !SvROK(status) ? form("\"%s\"", SvPV_nolen(status)) : kind_of(aTHX_ status));
    char digits[4] = {(char)('0' + code / 100), (char)('0' + code / 10 % 10), (char)('0' + code % 10)};
    bolide_text why = host->status(x->answer, digits, 3);
    if (why.size) croak("the status %s is refused: %.*s\n", digits, (int)why.size, why.data);
    SvGETMAGIC(headers);
    if (!SvROK(headers) || SvTYPE(SvRV(headers)) != SVt_PVAV)
        croak("the headers are %s, and must be an array reference\n", kind_of(aTHX_ headers));
    AV *list = (AV *)SvRV(headers);
    SSize_t count = av_count(list);
    if (count % 2) croak("the headers are an array with an odd number of elements\n");
    x->length = UINT64_MAX;
    for (SSize_t i = 0; i < count; i += 2) {
        SV **name = av_fetch(list, i, 0), **value = av_fetch(list, i + 1, 0);
        if (!name || !SvOK(*name)) croak("the name of a header is undef\n");
        STRLEN name_size, size = 0;
        const char *label = bytes_of(aTHX_ *name, &name_size, "the name of a header");
        if (value) SvGETMAGIC(*value);
        const char *text = value && SvOK(*value) ? bytes_of(aTHX_ *value, &size, form("the header \"%s\"", label)) : "";
        if (name_size == 14 && !strncasecmp(label, "Content-Length", 14)) x->length = (uint64_t)strtoull(text, NULL, 10);
        why = host->field(x->answer, label, name_size, text, size);
        if (why.size) croak("the header \"%s\" is refused: %.*s\n", label, (int)why.size, why.data);
    }
    x->has_head = true;
}

static void call_if_it_can(pTHX_ SV *object, const char *method) {
    ENTER;
    SAVETMPS;
    dSP;
    PUSHMARK(SP);
    XPUSHs(object);
    PUTBACK;
    call_method(method, G_VOID | G_DISCARD);
    FREETMPS;
    LEAVE;
}

static bool can(pTHX_ SV *object, const char *method) {
    if (!SvROK(object)) return false;
    SV *value = SvRV(object);
    if (SvOBJECT(value)) return gv_fetchmethod_autoload(SvSTASH(value), method, TRUE) != NULL;
    return SvTYPE(value) == SVt_PVGV || SvTYPE(value) == SVt_PVIO;
}

static bool is_array(SV *value) { return SvROK(value) && SvTYPE(SvRV(value)) == SVt_PVAV && !SvOBJECT(SvRV(value)); }

// Takes the body out of the exchange, and closes it.
static void close_body(pTHX_ struct exchange *x) {
    SV *body = x->body;
    SvREFCNT_dec(x->part);
    x->body = x->part = NULL;
    if (!body) return;
    sv_2mortal(body);
    if (!is_array(body) && can(aTHX_ body, "close")) call_if_it_can(aTHX_ body, "close");
}

// Passes the rest of the current part. Returns whether the next part may follow in this step.
static bool push_part(struct exchange *x, const char *bytes, size_t size, bool is_last, uint32_t flags) {
    if (size > x->sent) {
        size_t taken = host->push(x->answer, bytes + x->sent, size - x->sent, flags);
        if (taken == BOLIDE_GONE) {
            x->is_gone = true;
            x->outcome = BOLIDE_FINISHED;
            return false;
        }
        x->sent += taken;
        if (x->sent < size) {
            x->outcome = BOLIDE_SUSPENDED;
            return false;
        }
    }
    x->sent = 0;
    x->index++;
    if (is_last || host->state(x->answer) & BOLIDE_HAS_ROOM) return true;
    x->outcome = BOLIDE_SUSPENDED;
    return false;
}

static void send_array(pTHX_ struct exchange *x) {
    AV *list = (AV *)SvRV(x->body);
    SSize_t count = av_count(list);
    while (x->index < count) {
        SV **part = av_fetch(list, x->index, 0);
        STRLEN size = 0;
        const char *bytes = part && SvOK(*part) ? bytes_of(aTHX_ *part, &size, "the body") : "";
        bool is_last = x->index + 1 == count;
        if (!push_part(x, bytes, size, is_last, is_last ? 0 : BOLIDE_WITH_THE_NEXT)) return;
    }
    x->outcome = BOLIDE_FINISHED;
}

// Returns the next part of a handle or an object, or NULL at the end. `$/` asks for parts of a size, as PSGI allows.
static SV *get_line(pTHX_ SV *body) {
    ENTER;
    SAVETMPS;
    SV *separator = save_scalar(gv_fetchpvs("/", GV_ADD | GV_NOTQUAL, SVt_PV));
    sv_setsv_mg(separator, line_size);
    dSP;
    PUSHMARK(SP);
    XPUSHs(body);
    PUTBACK;
    int count = call_method("getline", G_SCALAR);
    SPAGAIN;
    SV *line = count > 0 ? POPs : NULL;
    PUTBACK;
    if (line) SvGETMAGIC(line);
    line = line && SvOK(line) ? newSVsv_nomg(line) : NULL;
    FREETMPS;
    LEAVE;
    return line;
}

static void send_lines(pTHX_ struct exchange *x) {
    for (;;) {
        if (!x->part) x->part = get_line(aTHX_ x->body);
        if (!x->part) break;
        ENTER;
        SAVETMPS;
        STRLEN size;
        const char *bytes = bytes_of(aTHX_ x->part, &size, "the body");
        bool has_room = push_part(x, bytes, size, false, 0);
        FREETMPS;
        LEAVE;
        if (x->sent) return;
        SvREFCNT_dec(x->part);
        x->part = NULL;
        if (!has_room) return;
    }
    x->outcome = BOLIDE_FINISHED;
}

// Returns the descriptor of a handle on a regular file whose bytes are those that `getline` would return, or -1.
static int file_of(pTHX_ SV *body, PerlIO **handle) {
    SV *value = SvRV(body);
    IO *io = NULL;
    if (SvTYPE(value) == SVt_PVGV && isGV_with_GP(value)) io = GvIO((GV *)value);
    else if (SvTYPE(value) == SVt_PVIO) io = (IO *)value;
    if (!io || !IoIFP(io) || SvRMAGICAL((SV *)io)) return -1;
    if (SvOBJECT(value)) {
        GV *own = gv_fetchmethod_autoload(SvSTASH(value), "getline", FALSE);
        GV *usual = gv_fetchmethod_autoload(gv_stashpvs("IO::Handle", GV_ADD), "getline", FALSE);
        if (!own || !usual || GvCV(own) != GvCV(usual)) return -1;
    }
    *handle = IoIFP(io);
    if (!PerlIOValid(*handle) || PerlIOBase(*handle)->flags & PERLIO_F_UTF8) return -1;
    for (PerlIOl *layer = **handle; layer; layer = layer->next)
        if (strcmp(layer->tab->name, "perlio") && strcmp(layer->tab->name, "unix")) return -1;
    return PerlIO_fileno(*handle);
}

// Sends the rest of a regular file without reading it in Perl. Returns false if the body is not such a file.
static bool send_file(pTHX_ struct exchange *x) {
    PerlIO *handle = NULL;
    int descriptor = file_of(aTHX_ x->body, &handle);
    struct stat about;
    if (descriptor < 0 || fstat(descriptor, &about) || !S_ISREG(about.st_mode)) return false;
    Off_t at = PerlIO_tell(handle);
    if (at < 0) return false;
    uint64_t length = about.st_size > at ? (uint64_t)(about.st_size - at) : 0;
    if (x->length < length) length = x->length;
    x->outcome = BOLIDE_FINISHED;
    if (!length) host->set_length(x->answer, 0);
    // The parts of a body may be chunks, which the lines of the file are.
    else if (host->push_file(x->answer, descriptor, at, length, BOLIDE_WHOLE_BODY)) return false;
    return true;
}

static void send_body(pTHX_ struct exchange *x) {
    if (is_array(x->body)) send_array(aTHX_ x);
    else send_lines(aTHX_ x);
    if (x->outcome == BOLIDE_FINISHED) close_body(aTHX_ x);
}

// Sends a complete answer.
static void answer_with(pTHX_ struct exchange *x, AV *answer) {
    SV **status = av_fetch(answer, 0, 0), **headers = av_fetch(answer, 1, 0), **body = av_fetch(answer, 2, 0);
    if (!status || !headers || !body || av_count(answer) != 3)
        croak("the answer is an array of %d elements, and must consist of a status, headers and a body\n", (int)av_count(answer));
    SvGETMAGIC(*body);
    if (!is_array(*body) && !can(aTHX_ *body, "getline"))
        croak("the body is %s, and must be an array reference or an object with `getline`\n", kind_of(aTHX_ *body));
    set_head(aTHX_ x, *status, *headers);
    x->body = newSVsv(*body);
    if (is_array(x->body)) {
        AV *parts = (AV *)SvRV(x->body);
        SSize_t count = av_count(parts);
        uint64_t total = 0;
        for (SSize_t i = 0; i < count; i++) {
            SV **part = av_fetch(parts, i, 0);
            STRLEN size = 0;
            if (part) SvGETMAGIC(*part);
            if (part && SvOK(*part)) bytes_of(aTHX_ *part, &size, "the body");
            total += size;
        }
        if (x->length == UINT64_MAX) host->set_length(x->answer, total);
    }
    x->outcome = BOLIDE_FINISHED;
    if (host->state(x->answer) & BOLIDE_HAS_NO_BODY || (!is_array(x->body) && send_file(aTHX_ x))) close_body(aTHX_ x);
    else send_body(aTHX_ x);
    x->is_complete = true;
}

// Returns the request of a responder or a writer.
static struct exchange *request_of(pTHX_ UV number, const char *what) {
    if (is_forked) croak("%s belongs to another process", what);
    if (!current || number != serial) croak("the request of %s is over", what);
    return current;
}

XS_INTERNAL(respond) {
    dXSARGS;
    struct exchange *x = request_of(aTHX_ (UV)XSANY.any_iv, "the responder");
    if (items != 1 || !SvROK(ST(0)) || SvTYPE(SvRV(ST(0))) != SVt_PVAV)
        croak("the answer is %s, and must be an array reference", items ? kind_of(aTHX_ ST(0)) : "missing");
    if (x->has_head) croak("the responder was called before");
    AV *answer = (AV *)SvRV(ST(0));
    if (av_count(answer) != 2) {
        answer_with(aTHX_ x, answer);
        XSRETURN_EMPTY;
    }
    SV **status = av_fetch(answer, 0, 0), **headers = av_fetch(answer, 1, 0);
    if (!status || !headers) croak("the answer lacks a status or headers");
    set_head(aTHX_ x, *status, *headers);
    x->is_streaming = true;
    SV *writer = newSV(0);
    ST(0) = sv_2mortal(sv_setref_uv(writer, "Bolide::PSGI::Writer", serial));
    XSRETURN(1);
}

static struct exchange *written(pTHX_ SV *writer) {
    if (!SvROK(writer) || !SvIOK(SvRV(writer))) croak("this is not a writer");
    struct exchange *x = request_of(aTHX_ SvUV(SvRV(writer)), "the writer");
    if (x->is_complete) croak("the writer is closed");
    return x;
}

XS_INTERNAL(writer_write) {
    dXSARGS;
    if (items != 2) croak("write expects a text");
    struct exchange *x = written(aTHX_ ST(0));
    STRLEN size = 0;
    SvGETMAGIC(ST(1));
    const char *bytes = SvOK(ST(1)) ? bytes_of(aTHX_ ST(1), &size, "the body") : "";
    if (size && !(host->state(x->answer) & BOLIDE_HAS_NO_BODY)) {
        // A stream without an end would never notice it otherwise.
        if (x->is_gone || host->write(x->answer, bytes, size) == BOLIDE_GONE) {
            x->is_gone = true;
            croak("the client has disconnected");
        }
        host->flush(x->answer);
    }
    XSRETURN_YES;
}

XS_INTERNAL(writer_close) {
    dXSARGS;
    if (items != 1) croak("close expects nothing");
    struct exchange *x = written(aTHX_ ST(0));
    x->is_complete = true;
    host->finish(x->answer, BOLIDE_MORE_CODE);
    XSRETURN_YES;
}

// psgix.informational: sends a response such as 103 before the answer.
XS_INTERNAL(inform) {
    dXSARGS;
    struct exchange *x = request_of(aTHX_ serial, "psgix.informational");
    if (items != 2 || !SvROK(ST(1)) || SvTYPE(SvRV(ST(1))) != SVt_PVAV)
        croak("psgix.informational expects a status and an array reference of headers");
    AV *list = (AV *)SvRV(ST(1));
    bolide_pair fields[MAX_FIELDS];
    size_t count = av_count(list) / 2;
    if (count > MAX_FIELDS) croak("an informational response may have %d headers", (int)MAX_FIELDS);
    for (size_t i = 0; i < 2 * count; i++) {
        SV **value = av_fetch(list, (SSize_t)i, 0);
        bolide_text *text = i % 2 ? &fields[i / 2].value : &fields[i / 2].name;
        STRLEN size = 0;
        text->data = value && SvOK(*value) ? bytes_of(aTHX_ *value, &size, "a header") : "";
        text->size = size;
    }
    bolide_text why = host->inform(x->answer, (uint32_t)SvUV(ST(0)), fields, count);
    if (why.size) croak("the informational response is refused: %.*s", (int)why.size, why.data);
    XSRETURN_EMPTY;
}

// psgix.io is made when its value is used. The connection is the application's from then on.
static int get_io(pTHX_ SV *value, MAGIC *magic) {
    UV number = PTR2UV(magic->mg_ptr);
    if (!number) return 0;
    struct exchange *x = request_of(aTHX_ number, "psgix.io");
    int descriptor = host->take_over(x->answer);
    if (descriptor < 0) croak("the connection can't be given to the application");
    magic->mg_ptr = NULL;
    dSP;
    PUSHSTACKi(PERLSI_MAGIC);
    ENTER;
    SAVETMPS;
    PUSHMARK(SP);
    XPUSHs(sv_2mortal(newSViv(descriptor)));
    PUTBACK;
    int count = call_pv("Bolide::PSGI::make_socket", G_SCALAR | G_EVAL);
    SPAGAIN;
    if (count > 0) sv_setsv(value, POPs);
    PUTBACK;
    FREETMPS;
    LEAVE;
    POPSTACK;
    if (!SvROK(value)) {
        close(descriptor);
        croak("a handle of the connection can't be made");
    }
    return 0;
}

static const MGVTBL io_magic = {.svt_get = get_io};

static SV *new_handle(pTHX_ PerlIO *stream) {
    GV *glob = (GV *)newSV(0);
    gv_init_pvn(glob, gv_stashpvs("Bolide::PSGI", GV_ADD), "input", 5, 0);
    IO *io = GvIOn(glob);
    IoIFP(io) = stream;
    IoTYPE(io) = IoTYPE_RDONLY;
    return newRV_noinc((SV *)glob);
}

static SV *handle_of_text(pTHX_ const char *data, size_t size) {
    SV *text = sv_2mortal(newRV_noinc(newSVpvn(data, size)));
    PerlIO *stream = PerlIO_openn(aTHX_ NULL, "r", -1, 0, 0, NULL, 1, &text);
    if (!stream) croak("the body can't be read: %s\n", strerror(errno));
    return new_handle(aTHX_ stream);
}

// Makes psgi.input, a handle of its own, so that it does not matter how long the application keeps it. Requests without a
// body share one, which has nothing to read.
static SV *make_input(pTHX_ bolide_request *request) {
    bolide_body body;
    host->body(request, &body);
    if (body.descriptor >= 0) {
        int copy = dup(body.descriptor);
        PerlIO *stream = copy >= 0 && lseek(copy, 0, SEEK_SET) == 0 ? PerlIO_fdopen(copy, "r") : NULL;
        if (!stream) croak("the body can't be read: %s\n", strerror(errno));
        return new_handle(aTHX_ stream);
    }
    if (body.size) return handle_of_text(aTHX_ body.data, (size_t)body.size);
    if (!empty_input || !GvIO((GV *)SvRV(empty_input)) || !IoIFP(GvIOp((GV *)SvRV(empty_input)))) {
        SvREFCNT_dec(empty_input);
        empty_input = handle_of_text(aTHX_ "", 0);
    }
    return newRV_inc(SvRV(empty_input));
}

// Returns the Perl string of a variable's name. It is kept, because its hash and its place in Perl's table of keys are known.
static SV *key_of(pTHX_ const char *name, size_t size) {
    if (size >= MAX_NAME_BYTES || !size) return newSVpvn_flags(name, size, SVs_TEMP);
    const unsigned char *bytes = (const unsigned char *)name;
    size_t place = (size * 31 + bytes[size - 1] * 7u + bytes[size / 2] * 3u + bytes[0]) % MAX_NAMES;
    if (names[place].size != size || memcmp(names[place].name, name, size)) {
        SvREFCNT_dec(names[place].key);
        names[place].key = newSVpvn_share(name, (I32)size, 0);
        names[place].size = size;
        memcpy(names[place].name, name, size);
    }
    return names[place].key;
}

static void store(pTHX_ HV *env, SV *key, SV *value) {
    U32 hash = SvIsCOW_shared_hash(key) ? SvSHARED_HASH(key) : 0;
    if (!hv_store_ent(env, key, value, hash)) SvREFCNT_dec(value);
}

#define STORE(name, value) store(aTHX_ env, key_of(aTHX_ "" name, sizeof name - 1), value)

static bool is_named(bolide_text text, const char *name, size_t size) {
    return text.size == size && !memcmp(text.data, name, size);
}

#define IS(text, name) is_named(text, name, sizeof name - 1)

// Makes the environment of PSGI. The values that middleware may replace are made for each request.
static HV *make_env(pTHX_ struct exchange *x) {
    HV *env = x->env = newHV();
    hv_ksplit(env, MIN_BUCKETS);
    const bolide_pair *pairs;
    size_t count = host->variables(x->request, &pairs);
    bool is_secure = false;
    for (size_t i = 0; i < count; i++) {
        bolide_text name = pairs[i].name, value = pairs[i].value;
        if (IS(name, "HTTPS")) is_secure |= IS(value, "on") || IS(value, "1");
        if (IS(name, "REQUEST_SCHEME")) is_secure |= IS(value, "https");
        store(aTHX_ env, key_of(aTHX_ name.data, name.size), newSVpvn(value.data, value.size));
    }
    x->input = make_input(aTHX_ x->request);
    STORE("psgi.version", newRV_inc(version_array));
    STORE("psgi.url_scheme", is_secure ? newSVpvs("https") : newSVpvs("http"));
    STORE("psgi.input", SvREFCNT_inc(x->input));
    STORE("psgi.errors", newRV_inc(errors_handle));
    STORE("psgi.multithread", newSViv(0));
    STORE("psgi.multiprocess", newSViv(is_multiprocess));
    STORE("psgi.run_once", newSViv(0));
    STORE("psgi.nonblocking", newSViv(0));
    STORE("psgi.streaming", newSViv(1));
    STORE("psgix.input.buffered", newSViv(1));
    STORE("psgix.cleanup", newSViv(1));
    STORE("psgix.cleanup.handlers", newRV_noinc((SV *)newAV()));
    STORE("psgix.harakiri", newSViv(1));
    STORE("psgix.logger", newRV_inc(logger_code));
    STORE("psgix.informational", newRV_inc(inform_code));
    if (has_io_option) {
        SV *io = newSV(0);
        sv_magicext(io, NULL, PERL_MAGIC_ext, &io_magic, INT2PTR(char *, serial), 0);
        STORE("psgix.io", io);
    }
    return env;
}

static SV *env_value(pTHX_ struct exchange *x, const char *name, size_t size) {
    HE *entry = x->env ? hv_fetch_ent(x->env, key_of(aTHX_ name, size), 0, 0) : NULL;
    return entry ? HeVAL(entry) : NULL;
}

// Ends a request. Its handlers of psgix.cleanup run when the client has the answer.
static void conclude(pTHX_ struct exchange *x) {
    SV *handlers = env_value(aTHX_ x, "psgix.cleanup.handlers", 22);
    if (handlers && SvROK(handlers) && SvTYPE(SvRV(handlers)) == SVt_PVAV && av_count((AV *)SvRV(handlers))) {
        AV *list = (AV *)sv_2mortal(SvREFCNT_inc(SvRV(handlers)));
        if (x->outcome == BOLIDE_FINISHED && x->answer && !x->is_gone) host->finish(x->answer, BOLIDE_MORE_CODE);
        for (SSize_t i = 0; i < (SSize_t)av_count(list); i++) {
            SV **handler = av_fetch(list, i, 0);
            if (!handler || !SvOK(*handler)) continue;
            ENTER;
            SAVETMPS;
            dSP;
            PUSHMARK(SP);
            XPUSHs(sv_2mortal(newRV_inc((SV *)x->env)));
            PUTBACK;
            call_sv(*handler, G_VOID | G_DISCARD | G_EVAL);
            if (SvTRUE(ERRSV)) {
                STRLEN size;
                const char *text = error_text(&size);
                host->log_error(x->request, text, size);
            }
            FREETMPS;
            LEAVE;
        }
    }
    SV *commit = env_value(aTHX_ x, "psgix.harakiri.commit", 21);
    if (commit && SvTRUE(commit)) host->retire();
    // A handle that the application keeps is closed, so that a file on disk does not stay.
    SV *input = x->input;
    HV *env = x->env;
    x->input = NULL;
    x->env = NULL;
    SvREFCNT_dec(env);
    if (input) {
        SV *glob = SvRV(input);
        bool is_kept = SvREFCNT(glob) > 1 && (!empty_input || glob != SvRV(empty_input));
        if (is_kept) do_close((GV *)glob, FALSE);
        SvREFCNT_dec(input);
    }
    close_body(aTHX_ x);
}

XS_INTERNAL(conclude_step) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    conclude(aTHX_ current);
    current->is_fine = true;
    XSRETURN_EMPTY;
}

// Calls the application, and sends its answer.
XS_INTERNAL(serve) {
    dXSARGS;
    SP -= items;
    struct exchange *x = current;
    SV **application = av_fetch(applications, (SSize_t)host->application(x->request), 0);
    if (!application) croak("the application is missing\n");
    HV *env = make_env(aTHX_ x);
    PUSHMARK(SP);
    XPUSHs(sv_2mortal(newRV_inc((SV *)env)));
    PUTBACK;
    int count = call_sv(*application, G_SCALAR);
    SPAGAIN;
    SV *answer = count > 0 ? POPs : &PL_sv_undef;
    PUTBACK;
    // A process that the application has forked has returned from it.
    if (is_forked) end_child(0);
    SvGETMAGIC(answer);
    HV *stash;
    GV *gv;
    if (host->state(x->answer) & BOLIDE_IS_TAKEN_OVER) {
        x->is_complete = true;
    } else if (SvROK(answer) && SvTYPE(SvRV(answer)) == SVt_PVAV) {
        answer_with(aTHX_ x, (AV *)SvRV(answer));
    } else if (SvROK(answer) && (SvTYPE(SvRV(answer)) == SVt_PVCV || SvAMAGIC(answer)) && sv_2cv(answer, &stash, &gv, 0)) {
        CV *responder = newXS(NULL, respond, __FILE__);
        CvXSUBANY(responder).any_iv = (IV)serial;
        SPAGAIN;
        PUSHMARK(SP);
        XPUSHs(sv_2mortal(newRV_noinc((SV *)responder)));
        PUTBACK;
        call_sv(answer, G_VOID | G_DISCARD);
        if (host->state(x->answer) & BOLIDE_IS_TAKEN_OVER) x->is_complete = true;
        else if (!x->has_head) croak("the application has not called its responder\n");
    } else {
        croak("the answer is %s, and must be an array reference or a code reference\n", kind_of(aTHX_ answer));
    }
    x->is_fine = true;
    if (x->outcome == BOLIDE_FINISHED) conclude(aTHX_ x);
    XSRETURN_EMPTY;
}

XS_INTERNAL(continue_answer) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    struct exchange *x = current;
    send_body(aTHX_ x);
    x->is_fine = true;
    if (x->outcome == BOLIDE_FINISHED) conclude(aTHX_ x);
    XSRETURN_EMPTY;
}

// Runs a step of a request, and what follows from its end.
static uint32_t run(struct exchange *x, CV *step, void **pending) {
    current = x;
    x->is_fine = false;
    bool is_back = protect(step);
    if (is_forked) {
        if (is_back && !x->is_fine) log_failure(NULL);
        end_child(!is_back ? STATUS_EXIT : x->is_fine ? 0 : 255);
    }
    if (error_line_size) flush_error_line();
    if (!is_back) {
        static const char text[] = "the application has called exit, which ends the worker";
        host->log_error(x->request, text, sizeof text - 1);
        // After the end of an answer, only the worker has failed.
        if (x->is_complete && x->outcome == BOLIDE_FINISHED && !x->is_gone) host->finish(x->answer, BOLIDE_MORE_CODE);
        x->outcome = BOLIDE_FAILED_FATALLY;
        current = NULL;
        return x->outcome;
    }
    if (!x->is_fine) {
        if (!x->is_gone) {
            log_failure(x);
            // An application that fails after its answer, as a delayed one may, does not take the answer back.
            if (!x->is_complete || step == step_continue) x->outcome = BOLIDE_FAILED;
        } else {
            x->outcome = BOLIDE_FINISHED;
        }
        if (x->outcome != BOLIDE_SUSPENDED && !protect(step_conclude)) x->outcome = BOLIDE_FAILED_FATALLY;
    }
    if (x->outcome == BOLIDE_SUSPENDED && !*pending) {
        struct exchange *copy = malloc(sizeof *copy);
        if (!copy) {
            if (!protect(step_conclude)) x->outcome = BOLIDE_FAILED_FATALLY;
            else x->outcome = BOLIDE_FAILED;
        } else {
            *copy = *x;
            copy->request = NULL;
            copy->answer = NULL;
            *pending = copy;
        }
    }
    current = NULL;
    return x->outcome;
}

static uint32_t call(void *thread, bolide_request *request, bolide_answer *answer, void **pending) {
    (void)thread;
    struct exchange x = {.request = request, .answer = answer, .length = UINT64_MAX};
    serial++;
    return run(&x, step_serve, pending);
}

static uint32_t resume(void *thread, bolide_answer *answer, void **pending) {
    (void)thread;
    struct exchange *x = *pending;
    x->answer = answer;
    // An answer with a writer is never suspended, so that a new serial hides only responders of the past.
    serial++;
    uint32_t outcome = run(x, step_continue, pending);
    if (outcome == BOLIDE_SUSPENDED) return outcome;
    free(x);
    *pending = NULL;
    return outcome;
}

static void abandon(void *thread, void *pending) {
    (void)thread;
    struct exchange *x = pending;
    x->answer = NULL;
    x->is_gone = true;
    if (!is_destroyed) {
        current = x;
        x->is_fine = false;
        if (protect(step_conclude) && !x->is_fine) log_failure(x);
        current = NULL;
    }
    free(x);
}

// Handlers of `%SIG` run here if their signal has interrupted the wait of the worker.
XS_INTERNAL(run_signals) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    PERL_ASYNC_CHECK();
    called.function = "";
    XSRETURN_EMPTY;
}

static int interrupted(void *thread) {
    (void)thread;
    if (!PL_sig_pending) return 0;
    called.function = NULL;
    bool is_back = protect(step_signals);
    if (is_forked) end_child(STATUS_EXIT);
    if (!is_back) return 1;
    if (!called.function) log_failure(NULL);
    return 0;
}

static size_t add_text(char *line, size_t size, size_t at, const char *text) {
    while (*text && at + 1 < size) line[at++] = *text++;
    return at;
}

static size_t add_place(char *line, size_t size, size_t at, const COP *place) {
    char digits[12], *digit = digits + sizeof digits - 1;
    line_t number = CopLINE(place);
    *digit = 0;
    do *--digit = (char)('0' + number % 10);
    while (number /= 10);
    at = add_text(line, size, at, CopFILE(place));
    at = add_text(line, size, at, ":");
    return add_text(line, size, at, digit);
}

// Writes where Perl is. The call comes from a signal handler, so it only reads the stack, and uses nothing but write(2).
static void show_stack(void *thread) {
    (void)thread;
    static char line[MAX_LOGGED_BYTES];
    const COP *place = PL_curcop;
    if (is_destroyed || !current || !place || !CopFILE(place)) return;
    size_t at = add_text(line, sizeof line, 0, "Perl is here: ");
    at = add_place(line, sizeof line, at, place);
    int frames = 0;
    for (const PERL_SI *stack = PL_curstackinfo; stack; stack = stack->si_prev) {
        for (I32 i = stack->si_cxix; i >= 0 && frames < MAX_FRAMES; i--) {
            const PERL_CONTEXT *context = &stack->si_cxstack[i];
            if (CxTYPE(context) != CXt_SUB || !context->blk_oldcop || !CopFILE(context->blk_oldcop)) continue;
            if (!CopLINE(context->blk_oldcop)) continue;
            at = add_text(line, sizeof line, at, frames++ ? ", " : ", called by ");
            at = add_place(line, sizeof line, at, context->blk_oldcop);
        }
    }
    line[at++] = '\n';
    ssize_t written_bytes = write(STDERR_FILENO, line, at);
    (void)written_bytes;
}

static int load(uint32_t number, bolide_text source, bolide_text mount) {
    (void)number;
    (void)mount;
    return call_prelude("Bolide::PSGI::load_watched", newSVpvn(source.data, source.size), "while it was loaded");
}

EXTERN_C void boot_DynaLoader(pTHX_ CV *cv);

static void init_xs(pTHX) {
    newXS("DynaLoader::boot_DynaLoader", boot_DynaLoader, __FILE__);
    newXS("Bolide::PSGI::add_application", add_application, __FILE__);
    newXS("Bolide::PSGI::watch", watch_file, __FILE__);
    newXS("Bolide::PSGI::set_program", set_program, __FILE__);
    newXS("Bolide::PSGI::write_log", log_text, __FILE__);
    newXS("Bolide::PSGI::write_error", write_error, __FILE__);
    newXS("Bolide::PSGI::Writer::write", writer_write, __FILE__);
    newXS("Bolide::PSGI::Writer::close", writer_close, __FILE__);
    step_serve = newXS(NULL, serve, __FILE__);
    step_continue = newXS(NULL, continue_answer, __FILE__);
    step_conclude = newXS(NULL, conclude_step, __FILE__);
    step_call = newXS(NULL, call_function, __FILE__);
    step_signals = newXS(NULL, run_signals, __FILE__);
    inform_code = (SV *)newXS(NULL, inform, __FILE__);
}

// Modules with C code look for Perl's functions among the symbols that all libraries see.
static void share_library(void) {
    Dl_info about;
    if (dladdr((void *)(uintptr_t)perl_alloc, &about) && about.dli_fname)
        dlopen(about.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static bool make_interpreter(void) {
    // An application that sets $0 writes into this memory.
    static char words[3][128] = {"perl", "-e", "0"};
    static char *arguments[] = {words[0], words[1], words[2], NULL};
    static char **argv = arguments;
    static int argc = 3;
    struct sigaction actions[MAX_SIGNALS];
    bool is_known[MAX_SIGNALS] = {false};
    for (int number = 1; number < MAX_SIGNALS; number++) is_known[number] = !sigaction(number, NULL, &actions[number]);
    share_library();
    PERL_SYS_INIT3(&argc, &argv, &environ);
    my_perl = perl_alloc();
    if (!my_perl) return explain("there is not enough memory"), false;
    PERL_SET_CONTEXT(my_perl);
    PL_perl_destruct_level = 0;
    perl_construct(my_perl);
    PL_exit_flags |= PERL_EXIT_DESTRUCT_END;
    bool is_fine = !perl_parse(my_perl, init_xs, argc, argv, NULL) && !perl_run(my_perl);
    // Perl ignores SIGFPE, for example. The signals are the host's, until the application sets one.
    for (int number = 1; number < MAX_SIGNALS; number++)
        if (is_known[number]) sigaction(number, &actions[number], NULL);
    if (!is_fine) return explain("Perl can't be started"), false;
    return true;
}

XS_INTERNAL(run_prelude) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    eval_pv(PRELUDE, TRUE);
    XSRETURN_EMPTY;
}

static void note_fork(void) { is_forked = true; }

static int start(const bolide_instance *instance) {
    if (pthread_atfork(NULL, NULL, note_fork)) return explain("there is not enough memory"), -1;
    is_multiprocess = instance->processes > 1;
    // Frameworks recognize PSGI by it, and choose their mode. These are uWSGI's values.
    if (setenv("PLACK_ENV", "uwsgi", 0) || setenv("PLACK_SERVER", "uwsgi", 0)) return explain("there is not enough memory"), -1;
    if (!make_interpreter()) return -1;
    applications = newAV();
    newXS("Bolide::PSGI::run_prelude", run_prelude, __FILE__);
    if (call_prelude("Bolide::PSGI::run_prelude", NULL, "while Perl started")) return -1;
    AV *version = newAV();
    av_push(version, newSViv(1));
    av_push(version, newSViv(1));
    version_array = (SV *)version;
    line_size = newRV_noinc(newSViv(65536));
    errors_handle = SvREFCNT_inc(SvRV(get_sv("Bolide::PSGI::errors", 0)));
    logger_code = SvREFCNT_inc(SvRV(get_sv("Bolide::PSGI::logger", 0)));
    sv_setpvn(get_sv("Bolide::PSGI::software", GV_ADD), instance->software.data, instance->software.size);
    static const struct { const char *name, *function; } OPTIONS[] = {
        {"exec", "Bolide::PSGI::execute"}, {"exec-post-fork", "Bolide::PSGI::execute_after_fork"},
        {"arg", "Bolide::PSGI::arguments"}, {"local-lib", "Bolide::PSGI::local_lib"},
        {"args", NULL}, {"enable-psgix-io", NULL},
    };
    for (size_t i = 0; i < instance->option_count; i++) {
        bolide_text name = instance->options[i].name, value = instance->options[i].value;
        size_t known = 0, count = sizeof OPTIONS / sizeof *OPTIONS;
        while (known < count && !is_named(name, OPTIONS[known].name, strlen(OPTIONS[known].name))) known++;
        if (known == count)
            return explain("its options are psgi, psgi-enable-psgix-io, perl-exec, perl-exec-post-fork, perl-arg, perl-args and "
                           "perl-local-lib"), -1;
        if (OPTIONS[known].function) {
            if (call_prelude(OPTIONS[known].function, newSVpvn(value.data, value.size), "while it was loaded")) return -1;
        } else if (IS(name, "args")) {
            for (size_t at = 0, end; at < value.size; at = end) {
                while (at < value.size && value.data[at] == ' ') at++;
                for (end = at; end < value.size && value.data[end] != ' ';) end++;
                if (end > at) av_push(get_av("ARGV", GV_ADD), newSVpvn(value.data + at, end - at));
            }
        } else if (IS(name, "enable-psgix-io")) {
            has_io_option = true;
        }
    }
    return 0;
}

// What Perl has buffered would be written by both processes.
static void before_fork(void) { PerlIO_flush(NULL); }

static int after_fork_in_child(uint32_t worker) {
    is_forked = false;
    PERL_SET_CONTEXT(my_perl);
    // The next `rand` takes a seed of its own, so that workers do not have the same numbers.
    PL_srand_called = FALSE;
    return call_prelude("Bolide::PSGI::after_fork", newSVuv(worker), "in a hook after the fork");
}

static void *enter(uint32_t number) {
    (void)number;
    PERL_SET_CONTEXT(my_perl);
    return my_perl;
}

// The worker exits in good order: hooks, END blocks and destructors run.
static void leave(void *thread) {
    (void)thread;
    if (is_destroyed) return;
    call_prelude("Bolide::PSGI::at_exit", NULL, "in a hook at the exit");
    if (error_line_size) flush_error_line();
    is_destroyed = true;
    perl_destruct(my_perl);
    PerlIO_flush(NULL);
}

static const bolide_adapter ADAPTER = {
    .version = BOLIDE_ABI_VERSION, .size = sizeof(bolide_adapter), .name = "Perl " PERL_VERSION_STRING,
    .flags = BOLIDE_ONE_THREAD, .load = load, .call = call, .resume = resume, .abandon = abandon, .start = start,
    .before_fork = before_fork, .after_fork_in_child = after_fork_in_child, .enter = enter, .leave = leave,
    .interrupted = interrupted, .show_stack = show_stack,
};

const bolide_adapter *bolide_adapter_v1(const bolide_host *table) {
    if (table->size <= offsetof(bolide_host, retire)) return NULL;
    host = table;
    return &ADAPTER;
}
