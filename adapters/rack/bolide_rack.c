// Applications in Ruby for Bolide: Rack 2 and 3. For Ruby 2.7 and later.
// bolide-build: flags $(ruby -e 'puts RbConfig.expand("-I$(rubyhdrdir) -I$(rubyarchhdrdir) -L$(libdir) $(LIBRUBYARG_SHARED)")')
// bolide-build: debian ruby-dev ruby-rack
//
// The prototype makes the interpreter and loads the applications. Workers are forks of it, so they share this memory. A worker
// serves without Ruby's lock, and takes it for each call, so threads of the application go on while the worker waits. A body
// that is an array can be suspended. Any other body sends itself, and its thread waits for the client.
//
// It knows Bolide only by bolide_app.h. Prototypes and workers run it.

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <ruby.h>
#include <ruby/debug.h>
#include <ruby/encoding.h>
#include <ruby/thread.h>
#include <ruby/version.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bolide_app.h"

#define TEXT_OF(number) #number
#define VERSION_OF(major, minor) "Ruby " TEXT_OF(major) "." TEXT_OF(minor)

enum {
    MAX_NAMES = 512,       // slots for the names of variables that were seen
    MAX_PAIRS = 64,        // variables that are put into the environment together
    MAX_HINTS = 32,        // fields of a response before the answer
    MAX_FRAMES = 30,       // lines of a stack that is shown
    MAX_SHOWN_BYTES = 4096,
    MAX_SIGNALS = 65,
    MAX_TRIES = 100,       // errors that other threads raise in a thread before it serves
    MAX_LINE_READ = 8192,  // bytes that are read from a file in search of the end of a line
    MIN_STATUS = 100,
    MAX_STATUS = 999,
};

// A request and its answer. Ruby sees it as `rack.input`. It outlives its request if the application keeps it, and is closed
// then. While its answer is suspended, it is in a list, so that the garbage collector finds it.
struct exchange {
    struct exchange *next, *previous;
    VALUE self, env, headers, body, parts, finished, replied, error;
    bolide_request *request;
    bolide_answer *answer;
    bolide_body input;
    uint64_t at;       // the position of `read`
    pthread_t thread;  // the thread of the call, which alone may answer
    int status;
    long part;         // the part of an array that is sent
    size_t sent;       // how much of it was sent
    uint32_t outcome;
    bool is_open, is_listed, must_close, is_stream_closed, is_gone;
};

// A call of the host, as an argument for the functions that take Ruby's lock.
struct work {
    bolide_request *request;
    bolide_answer *answer;
    struct exchange *exchange;
    void **pending;
    VALUE (*step)(VALUE);
    uint32_t outcome;
    int result;
};

struct writing {
    bolide_answer *answer;
    const char *bytes;
    size_t size, result;
};

struct body_call {
    void (*body)(void *);
    void *argument;
    bool was_called;
};

static const bolide_host *host;
static struct exchange suspended = {.next = &suspended, .previous = &suspended};
static VALUE applications, template, module, input_class, hijack_class, hints_class, stream_class;
static VALUE scheme_key, input_key, hijack_key, hints_key, finished_key, replied_key, hijack_io_key;
static ID id_call, id_each, id_close, id_to_path, id_to_ary, id_to_i;
static VALUE name_slots[MAX_NAMES];
static unsigned long gc_freq, requests;
static pid_t own_pid;
static bool splits_values;
static bool has_left;  // the first thread, which is the last one to leave
static struct sigaction ruby_child_action, host_child_action;

// What is clearer in Ruby: messages, the loading of an application, and the module UWSGI.
static const char PRELUDE[] =
    "$stdout.sync = $stderr.sync = true\n"
    "module Bolide\n"
    "  MAX_LINES = 20\n"
    "  MAX_CAUSES = 5\n"
    "  class Refused < StandardError; end\n"
    "  class Errors\n"
    "    def initialize() @rest = ''.b end\n"
    "    def write(*texts)\n"
    "      texts.sum { |text| text = text.to_s; Bolide.log(text) unless text.empty?; text.bytesize }\n"
    "    end\n"
    "    def <<(text) write(text); self end\n"
    "    def print(*texts) write(*texts); nil end\n"
    "    def printf(*arguments) write(format(*arguments)); nil end\n"
    "    def puts(*lines)\n"
    "      lines = [''] if lines.empty?\n"
    "      lines.flatten.each { |line| write(line.to_s.end_with?(\"\\n\") ? line : \"#{line}\\n\") }\n"
    "      nil\n"
    "    end\n"
    "    def flush() self end\n"
    "    def sync() true end\n"
    "    def fsync() 0 end\n"
    "    def tty?() false end\n"
    "    alias isatty tty?\n"
    "    def close() end\n"
    "    def closed?() false end\n"
    "    def reopen(*) self end\n"
    "  end\n"
    "  def self.text_of(error)\n"
    "    text = error.message.to_s.b\n"
    "    text.empty? ? error.class.to_s.b : text\n"
    "  rescue Exception\n"
    "    'an error whose message raises another one'.b\n"
    "  end\n"
    "  def self.describe(error)\n"
    "    return text_of(error) if error.instance_of?(Refused)\n"
    "    text = ''.b\n"
    "    MAX_CAUSES.times do |number|\n"
    "      place, *others = (error.backtrace || []).map(&:b)\n"
    "      text << \"\\ncaused by \" if number > 0\n"
    "      text << place << ': ' if place\n"
    "      text << text_of(error) << ' (' << error.class.to_s.b << ')'\n"
    "      others.first(MAX_LINES - 1).each { |line| text << \"\\n    from \" << line }\n"
    "      text << \"\\n    and #{others.size - MAX_LINES + 1} more lines\" if others.size >= MAX_LINES\n"
    "      break unless error = error.cause\n"
    "    end\n"
    "    text\n"
    "  end\n"
    "  # Returns one line with the place in the application, and all of it for the log.\n"
    "  def self.explain(error)\n"
    "    return [text_of(error), nil] if error.instance_of?(Refused)\n"
    "    return ['the application called exit', nil] if error.is_a?(SystemExit)\n"
    "    line = text_of(error).lines.first.to_s.chomp\n"
    "    foreign = /\\A(?:<internal:|#{Regexp.union(@libraries)})/\n"
    "    place = (error.backtrace || []).find { |at| !foreign.match?(at) }\n"
    "    place = place && place[/\\A.*?:\\d+/]\n"
    "    line = \"#{place}: #{line}\".b if place && !error.is_a?(SyntaxError)\n"
    "    [\"#{line} (#{error.class})\".b, describe(error)]\n"
    "  end\n"
    "  def self.start(software, libraries, files)\n"
    "    @libraries = [*$LOAD_PATH, *Gem.path, *Gem.default_path].uniq.map { |path| \"#{path}/\" }\n"
    "    @software = software\n"
    "    libraries.each { |path| $LOAD_PATH.unshift(File.expand_path(path)) }\n"
    "    files.each { |file| File.file?(path = File.expand_path(file)) ? require(path) : require(file) }\n"
    "    begin\n"
    "      require 'rack'\n"
    "      # Rack::Lint uses it, and relies on its server.\n"
    "      require 'uri'\n"
    "    rescue LoadError => error\n"
    "      raise unless error.path == 'rack'\n"
    "      raise Refused, 'the gem rack is not installed: apt-get install ruby-rack, or gem install rack'\n"
    "    end\n"
    "  end\n"
    "  # Rack 2 returns its options too.\n"
    "  def self.load(source)\n"
    "    path = File.expand_path(source)\n"
    "    raise Refused, \"the file #{path} does not exist\" unless File.file?(path)\n"
    "    app, = is_rack_2? ? Rack::Builder.parse_file(path, nil) : Rack::Builder.parse_file(path)\n"
    "    [path, *$LOADED_FEATURES].each { |file| watch(file) unless file.start_with?(*@libraries) }\n"
    "    return app if app.respond_to?(:call)\n"
    "    raise Refused, \"#{path} must run an object with the method `call`, and runs a value of #{app.class}\"\n"
    "  end\n"
    "  def self.is_rack_2?() Rack.release.to_i < 3 end\n"
    "  def self.freeze() Process.respond_to?(:warmup) ? Process.warmup : 3.times { GC.start } end\n"
    "  def self.socket(descriptor, is_unix)\n"
    "    require 'socket'\n"
    "    (is_unix ? UNIXSocket : TCPSocket).for_fd(descriptor)\n"
    "  end\n"
    "  def self.run_all(blocks, *arguments)\n"
    "    blocks.each do |block|\n"
    "      block.call(*arguments)\n"
    "    rescue Exception => error\n"
    "      log(describe(error))\n"
    "    end\n"
    "  end\n"
    "  def self.become(number) UWSGI.send(:become, number) end\n"
    "end\n"
    "module UWSGI\n"
    "  @after_fork, @worker = [], 0\n"
    "  class << self\n"
    "    def log(text) Bolide.log(text.to_s); nil end\n"
    "    def worker_id() @worker end\n"
    "    def postfork(&block) @after_fork << block; nil end\n"
    "    def atexit(&block) Kernel.at_exit(&block); nil end\n"
    "    def become(number)\n"
    "      @worker = number\n"
    "      @after_fork.each(&:call)\n"
    "      post_fork_hook if methods.include?(:post_fork_hook)\n"
    "    end\n"
    "    private :become\n"
    "    def method_missing(name, *) raise NoMethodError, \"UWSGI.#{name} is not supported with Ruby\" end\n"
    "    def respond_to_missing?(*) false end\n"
    "  end\n"
    "end\n"
    // The part of uWSGI's uwsgidsl.rb that works here. `require` finds it as a file that was loaded.
    "def postfork(&block) UWSGI.postfork(&block) end\n"
    "private :postfork\n"
    "$LOADED_FEATURES << 'uwsgidsl.rb'\n";

static void explain(const char *reason) { host->explain(reason, strlen(reason)); }

static VALUE refused_class(void) { return rb_const_get(module, rb_intern("Refused")); }

// Tells why the request fails, without a place in the application.
static void refuse(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    VALUE text = rb_vsprintf(format, arguments);
    va_end(arguments);
    rb_exc_raise(rb_exc_new_str(refused_class(), text));
}

static void refuse_if(bolide_text why, const char *what, VALUE text) {
    if (why.size) refuse("the %s %+" PRIsVALUE " is refused: %.*s", what, text, (int)why.size, why.data);
}

// A process that the application has forked is not the worker, and must not touch the worker's connections.
static void leave_fork(int status) {
    if (getpid() != own_pid) _exit(status);
}

// The text of an error, for the log. It is called in rb_protect, because messages are code of the application.
static VALUE describe(VALUE error) { return rb_funcall(module, rb_intern("describe"), 1, error); }

// Takes the error that has ended a protected call, or Qnil if it is none that has a class, such as Thread.exit.
static VALUE take_error(void) {
    VALUE error = rb_errinfo();
    rb_set_errinfo(Qnil);
    return RTEST(rb_obj_is_kind_of(error, rb_eException)) ? error : Qnil;
}

static void log_text(bolide_request *request, bool is_request, VALUE text) {
    if (is_request) host->log_error(request, RSTRING_PTR(text), (size_t)RSTRING_LEN(text));
    else host->log(RSTRING_PTR(text), (size_t)RSTRING_LEN(text));
    RB_GC_GUARD(text);
}

// Logs an error of the application. Returns the outcome of a request that it has ended.
static uint32_t report(bolide_request *request, bool is_request, VALUE error) {
    static const char ended[] = "the application ended its thread", exited[] = "the application called exit";
    const char *words = NIL_P(error) ? ended : RTEST(rb_obj_is_kind_of(error, rb_eSystemExit)) ? exited : NULL;
    if (words) {
        if (is_request) host->log_error(request, words, strlen(words));
        else host->log(words, strlen(words));
        return BOLIDE_FAILED_FATALLY;
    }
    int state = 0;
    VALUE text = rb_protect(describe, error, &state);
    if (state) {
        take_error();
        text = rb_class_name(rb_obj_class(error));
    }
    log_text(request, is_request, text);
    return BOLIDE_FAILED;
}

// ---- Memory

static void mark_exchange(void *pointer) {
    struct exchange *exchange = pointer;
    rb_gc_mark(exchange->self);
    rb_gc_mark(exchange->env);
    rb_gc_mark(exchange->headers);
    rb_gc_mark(exchange->body);
    rb_gc_mark(exchange->parts);
    rb_gc_mark(exchange->finished);
    rb_gc_mark(exchange->replied);
    rb_gc_mark(exchange->error);
}

// Marks what only C refers to. It also keeps GC.compact from moving it.
static void mark_roots(void *pointer) {
    (void)pointer;
    for (int slot = 0; slot < MAX_NAMES; slot++)
        if (name_slots[slot]) rb_gc_mark(name_slots[slot]);
    for (struct exchange *one = suspended.next; one != &suspended; one = one->next) rb_gc_mark(one->self);
}

static void mark_owner(void *pointer) { rb_gc_mark(((struct exchange *)pointer)->self); }

static const rb_data_type_t EXCHANGE = {
    "Bolide::Input", {mark_exchange, RUBY_DEFAULT_FREE, NULL, NULL, {0}}, NULL, NULL, RUBY_TYPED_FREE_IMMEDIATELY};
static const rb_data_type_t ROOTS = {"Bolide::Roots", {mark_roots, NULL, NULL, NULL, {0}}, NULL, NULL, 0};
// The other objects of a request, which keep its exchange alive.
static const rb_data_type_t PART = {
    "Bolide::Part", {mark_owner, NULL, NULL, NULL, {0}}, NULL, NULL, RUBY_TYPED_FREE_IMMEDIATELY};

static void list(struct exchange *exchange) {
    if (exchange->is_listed) return;
    exchange->is_listed = true;
    exchange->next = suspended.next;
    exchange->previous = &suspended;
    suspended.next->previous = exchange;
    suspended.next = exchange;
}

static void unlist(struct exchange *exchange) {
    if (!exchange->is_listed) return;
    exchange->is_listed = false;
    exchange->previous->next = exchange->next;
    exchange->next->previous = exchange->previous;
}

// ---- The input

static struct exchange *input_of(VALUE self) {
    struct exchange *exchange = rb_check_typeddata(self, &EXCHANGE);
    if (!exchange->is_open) rb_raise(rb_eIOError, "the request is over, so its input can't be read any more");
    return exchange;
}

// The exchange of an object by which the application answers.
static struct exchange *answering(VALUE self) {
    struct exchange *exchange = rb_check_typeddata(self, &PART);
    if (!exchange->is_open) rb_raise(rb_eIOError, "the request is over");
    if (!pthread_equal(exchange->thread, pthread_self()))
        rb_raise(rb_eIOError, "only the thread of the request may do this");
    leave_fork(0);
    return exchange;
}

// Reads into a string, which gets this size.
static void read_into(struct exchange *exchange, VALUE text, size_t size) {
    rb_str_modify(text);
    rb_str_resize(text, (long)size);
    rb_enc_associate(text, rb_ascii8bit_encoding());
    if (exchange->input.descriptor < 0) {
        memcpy(RSTRING_PTR(text), exchange->input.data + exchange->at, size);
        exchange->at += size;
        return;
    }
    for (size_t done = 0; done < size;) {
        ssize_t count = pread(exchange->input.descriptor, RSTRING_PTR(text) + done, size - done, (off_t)exchange->at);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) rb_raise(rb_eIOError, "the body can't be read: %s", count ? strerror(errno) : "its file is too short");
        done += (size_t)count;
        exchange->at += (uint64_t)count;
    }
}

// Without a length it reads all that is left. At the end it returns nil with a length, and "" without.
static VALUE input_read(int count, VALUE *values, VALUE self) {
    rb_check_arity(count, 0, 2);
    struct exchange *exchange = input_of(self);
    uint64_t left = exchange->input.size - exchange->at, wanted = left;
    bool has_length = count > 0 && !NIL_P(values[0]);
    VALUE text = count > 1 && !NIL_P(values[1]) ? rb_str_to_str(values[1]) : rb_str_new(NULL, 0);
    if (has_length) {
        long length = NUM2LONG(values[0]);
        if (length < 0) rb_raise(rb_eArgError, "negative length %ld given", length);
        if ((uint64_t)length < wanted) wanted = (uint64_t)length;
        if (length > 0 && !left) {
            rb_str_modify(text);
            rb_str_resize(text, 0);
            return Qnil;
        }
    }
    read_into(exchange, text, (size_t)wanted);
    return text;
}

static VALUE input_gets(int count, VALUE *values, VALUE self) {
    (void)values;
    rb_check_arity(count, 0, 0);
    struct exchange *exchange = input_of(self);
    uint64_t left = exchange->input.size - exchange->at, size = 0;
    if (!left) return Qnil;
    if (exchange->input.descriptor < 0) {
        const char *from = exchange->input.data + exchange->at, *end = memchr(from, '\n', (size_t)left);
        size = end ? (uint64_t)(end - from) + 1 : left;
    } else {
        char bytes[MAX_LINE_READ];
        while (size < left) {
            ssize_t got = pread(exchange->input.descriptor, bytes, sizeof bytes, (off_t)(exchange->at + size));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) break;
            const char *end = memchr(bytes, '\n', (size_t)got);
            size += end ? (uint64_t)(end - bytes) + 1 : (uint64_t)got;
            if (end) break;
        }
        if (size > left) size = left;
    }
    VALUE line = rb_str_new(NULL, 0);
    read_into(exchange, line, (size_t)size);
    return line;
}

static VALUE input_each(VALUE self) {
    RETURN_ENUMERATOR(self, 0, 0);
    VALUE line;
    while (!NIL_P(line = input_gets(0, NULL, self))) rb_yield(line);
    return self;
}

static VALUE input_rewind(VALUE self) {
    input_of(self)->at = 0;
    return INT2FIX(0);
}

static VALUE input_size(VALUE self) { return ULL2NUM(input_of(self)->input.size); }
static VALUE input_pos(VALUE self) { return ULL2NUM(input_of(self)->at); }
static VALUE input_eof(VALUE self) { return input_of(self)->at == input_of(self)->input.size ? Qtrue : Qfalse; }
static VALUE input_close(VALUE self) { return (void)self, Qnil; }
static VALUE input_binmode(VALUE self) { return self; }
static VALUE input_is_binmode(VALUE self) { return (void)self, Qtrue; }
static VALUE input_encoding(VALUE self) { return (void)self, rb_enc_from_encoding(rb_ascii8bit_encoding()); }

// ---- The answer while the application runs

static VALUE take_over(VALUE self) {
    struct exchange *exchange = answering(self);
    VALUE taken = rb_hash_lookup2(exchange->env, hijack_io_key, Qnil);
    if (!NIL_P(taken)) return taken;
    int descriptor = host->take_over(exchange->answer);
    if (descriptor < 0) rb_raise(rb_eIOError, "the connection can't be taken over");
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    bool is_unix = !getsockname(descriptor, (struct sockaddr *)&address, &size) && address.ss_family == AF_UNIX;
    VALUE io = rb_funcall(module, rb_intern("socket"), 2, INT2NUM(descriptor), is_unix ? Qtrue : Qfalse);
    rb_hash_aset(exchange->env, hijack_io_key, io);
    return io;
}

struct fields {
    struct exchange *exchange;
    bolide_pair *hints;  // the fields of a response before the answer, or NULL
    size_t count;
    VALUE kept;          // the texts of the hints
    VALUE hijack;
};

static void add_value(struct fields *fields, VALUE name, VALUE text, const char *value, size_t size) {
    const char *label = RSTRING_PTR(name);
    size_t length = (size_t)RSTRING_LEN(name);
    if (!fields->hints) {
        bolide_text why = host->field(fields->exchange->answer, label, length, value, size);
        refuse_if(why, "header", name);
        return;
    }
    if (fields->count == MAX_HINTS) return;
    rb_ary_push(fields->kept, name);
    rb_ary_push(fields->kept, text);
    fields->hints[fields->count++] = (bolide_pair){{label, length}, {value, size}};
}

// Adds a field with one value. In Rack 2 the lines of a text are values.
static void add_text(struct fields *fields, VALUE name, VALUE value) {
    VALUE text = RB_TYPE_P(value, T_STRING) ? value : rb_obj_as_string(value);
    const char *at = RSTRING_PTR(text), *end = at + RSTRING_LEN(text);
    while (splits_values) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) break;
        if (line_end > at) add_value(fields, name, text, at, (size_t)(line_end - at));
        at = line_end + 1;
        if (at == end) return;
    }
    add_value(fields, name, text, at, (size_t)(end - at));
    RB_GC_GUARD(text);
}

static void add_field(struct fields *fields, VALUE name, VALUE value) {
    if (!RB_TYPE_P(name, T_STRING)) name = rb_obj_as_string(name);
    if (RSTRING_LEN(name) > 5 && !memcmp(RSTRING_PTR(name), "rack.", 5)) {
        if (RSTRING_LEN(name) == 11 && !memcmp(RSTRING_PTR(name), "rack.hijack", 11)) fields->hijack = value;
        return;
    }
    if (NIL_P(value)) return;
    if (!RB_TYPE_P(value, T_ARRAY)) {
        add_text(fields, name, value);
        return;
    }
    for (long i = 0; i < RARRAY_LEN(value); i++) add_text(fields, name, RARRAY_AREF(value, i));
}

static int add_entry(VALUE name, VALUE value, VALUE fields) {
    add_field((struct fields *)fields, name, value);
    return ST_CONTINUE;
}

static VALUE add_yielded(RB_BLOCK_CALL_FUNC_ARGLIST(first, fields)) {
    VALUE pair = argc > 1 ? Qnil : rb_check_array_type(first);
    if (argc < 2 && (NIL_P(pair) || RARRAY_LEN(pair) != 2)) refuse("the headers must be pairs of a name and a value");
    add_field((struct fields *)fields, argc > 1 ? argv[0] : RARRAY_AREF(pair, 0), argc > 1 ? argv[1] : RARRAY_AREF(pair, 1));
    return Qnil;
}

static void add_fields(struct fields *fields, VALUE headers) {
    if (RB_TYPE_P(headers, T_HASH)) rb_hash_foreach(headers, add_entry, (VALUE)fields);
    else if (rb_respond_to(headers, id_each)) rb_block_call(headers, id_each, 0, NULL, add_yielded, (VALUE)fields);
    else refuse("the headers are a value of %" PRIsVALUE ", and must be a hash", rb_obj_class(headers));
}

// Sends `103 Early Hints`.
static VALUE send_hints(VALUE self, VALUE headers) {
    struct exchange *exchange = answering(self);
    bolide_pair pairs[MAX_HINTS];
    struct fields fields = {.exchange = exchange, .hints = pairs, .kept = rb_ary_new(), .hijack = Qnil};
    add_fields(&fields, headers);
    bolide_text why = host->inform(exchange->answer, 103, pairs, fields.count);
    RB_GC_GUARD(fields.kept);
    if (why.size) rb_raise(rb_eIOError, "the hints are refused: %.*s", (int)why.size, why.data);
    return Qnil;
}

static void *write_unlocked(void *argument) {
    struct writing *writing = argument;
    writing->result = host->write(writing->answer, writing->bytes, writing->size);
    return NULL;
}

// Sends a part, and waits for the client without Ruby's lock. Returns false if the client is gone. Another thread may change
// the string during the wait, so it is a copy that is sent, which shares the bytes.
static bool write_part(struct exchange *exchange, VALUE part) {
    if (!RB_TYPE_P(part, T_STRING))
        refuse("a part of the body is a value of %" PRIsVALUE ", and must be a string", rb_obj_class(part));
    leave_fork(0);
    if (!RSTRING_LEN(part)) return !exchange->is_gone;
    VALUE bytes = rb_str_new_frozen(part);
    struct writing writing = {exchange->answer, RSTRING_PTR(bytes), (size_t)RSTRING_LEN(bytes), BOLIDE_GONE};
    rb_thread_call_without_gvl(write_unlocked, &writing, NULL, NULL);
    RB_GC_GUARD(bytes);
    if (writing.result == BOLIDE_GONE) exchange->is_gone = true;
    return !exchange->is_gone;
}

static VALUE write_yielded(RB_BLOCK_CALL_FUNC_ARGLIST(part, argument)) {
    if (!pthread_equal(((struct exchange *)argument)->thread, pthread_self()))
        rb_raise(rb_eIOError, "only the thread of the request may send its body");
    if (!write_part((struct exchange *)argument, part)) rb_iter_break();
    return Qnil;
}

static VALUE gather_yielded(RB_BLOCK_CALL_FUNC_ARGLIST(part, parts)) { return rb_ary_push(parts, part); }

// ---- The stream of a body that is called, and of a partial hijack

static struct exchange *stream_of(VALUE self) {
    struct exchange *exchange = answering(self);
    if (exchange->is_stream_closed) rb_raise(rb_eIOError, "closed stream");
    return exchange;
}

static VALUE stream_write(int count, VALUE *values, VALUE self) {
    struct exchange *exchange = stream_of(self);
    long written = 0;
    for (int i = 0; i < count; i++) {
        VALUE text = rb_obj_as_string(values[i]);
        if (!write_part(exchange, text)) rb_syserr_fail(EPIPE, "the client has disconnected");
        written += RSTRING_LEN(text);
    }
    return LONG2NUM(written);
}

static VALUE stream_append(VALUE self, VALUE text) {
    stream_write(1, &text, self);
    return self;
}

static VALUE stream_flush(VALUE self) {
    host->flush(stream_of(self)->answer);
    return self;
}

static VALUE stream_read(int count, VALUE *values, VALUE self) { return input_read(count, values, answering(self)->self); }

static VALUE stream_close(VALUE self) {
    ((struct exchange *)rb_check_typeddata(self, &PART))->is_stream_closed = true;
    return Qnil;
}

static VALUE stream_is_closed(VALUE self) {
    struct exchange *exchange = rb_check_typeddata(self, &PART);
    return exchange->is_stream_closed || !exchange->is_open ? Qtrue : Qfalse;
}

// The body has arrived, and a write waits for the client, so both never have to be tried again.
static VALUE stream_read_nonblock(int count, VALUE *values, VALUE self) {
    VALUE part = input_read(count > 2 ? 2 : count, values, answering(self)->self);
    if (NIL_P(part)) rb_raise(rb_eEOFError, "end of file reached");
    return part;
}

static VALUE stream_write_nonblock(int count, VALUE *values, VALUE self) {
    rb_check_arity(count, 1, 2);
    return stream_write(1, values, self);
}

static VALUE stream_nothing(VALUE self) { return (void)self, Qnil; }

// ---- The environment

// Names are few and come with each request, so their strings are kept. A slot has the last name that was hashed to it.
static VALUE name_of(bolide_text name) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.size; i++) hash = (hash ^ (unsigned char)name.data[i]) * 16777619u;
    uint32_t slot = (hash ^ hash >> 16) % MAX_NAMES;
    VALUE known = name_slots[slot];
    if (known && (size_t)RSTRING_LEN(known) == name.size && !memcmp(RSTRING_PTR(known), name.data, name.size)) return known;
    VALUE text = rb_enc_interned_str(name.data, (long)name.size, rb_utf8_encoding());
    return name_slots[slot] = text;
}

static bool is_named(bolide_text text, const char *name) {
    return text.size == strlen(name) && !memcmp(text.data, name, text.size);
}

static VALUE part_of(struct exchange *exchange, VALUE class) { return rb_data_typed_object_wrap(class, exchange, &PART); }

// Makes the environment. The strings are binary, as the specification demands for bytes that are not ASCII.
static VALUE environment(struct exchange *exchange) {
    const bolide_pair *pairs;
    size_t count = host->variables(exchange->request, &pairs);
    VALUE env = rb_hash_dup(template);
    VALUE values[2 * MAX_PAIRS];
    long filled = 0;
    bool is_http2 = false;
    for (size_t i = 0; i < count; i++) {
        const bolide_pair *pair = &pairs[i];
        if (!pair->value.size && (is_named(pair->name, "CONTENT_LENGTH") || is_named(pair->name, "CONTENT_TYPE"))) continue;
        if (is_named(pair->name, "REQUEST_SCHEME"))
            rb_hash_aset(env, scheme_key, rb_str_new(pair->value.data, (long)pair->value.size));
        if (is_named(pair->name, "SERVER_PROTOCOL")) is_http2 = pair->value.size > 6 && pair->value.data[5] == '2';
        values[filled++] = name_of(pair->name);
        values[filled++] = rb_str_new(pair->value.data, (long)pair->value.size);
        if (filled == 2 * MAX_PAIRS) {
            rb_hash_bulk_insert(filled, values, env);
            filled = 0;
        }
    }
    exchange->env = env;
    exchange->finished = rb_ary_new();
    exchange->replied = rb_ary_new();
    if (filled) rb_hash_bulk_insert(filled, values, env);
    rb_hash_aset(env, input_key, exchange->self);
    rb_hash_aset(env, hijack_key, part_of(exchange, hijack_class));
    // Many clients of HTTP/1.1 take a response before the answer for the answer (RFC 8297 section 3), and Rails sends one with
    // each page that has a style sheet.
    if (is_http2) rb_hash_aset(env, hints_key, part_of(exchange, hints_class));
    rb_hash_aset(env, finished_key, exchange->finished);
    rb_hash_aset(env, replied_key, exchange->replied);
    return env;
}

// ---- The answer that the application returns

// Sends parts of an array as far as the client reads.
static void send_parts(struct exchange *exchange) {
    exchange->outcome = BOLIDE_FINISHED;
    for (;;) {
        long count = RARRAY_LEN(exchange->parts);
        if (exchange->part >= count) return;
        VALUE part = RARRAY_AREF(exchange->parts, exchange->part);
        if (!RB_TYPE_P(part, T_STRING))
            refuse("a part of the body is a value of %" PRIsVALUE ", and must be a string", rb_obj_class(part));
        size_t size = (size_t)RSTRING_LEN(part);
        if (exchange->sent > size) exchange->sent = size;
        bool is_last = exchange->part + 1 == count;
        size_t taken = host->push(exchange->answer, RSTRING_PTR(part) + exchange->sent, size - exchange->sent,
                                  is_last ? 0 : BOLIDE_WITH_THE_NEXT);
        if (taken == BOLIDE_GONE) return;
        exchange->sent += taken;
        bool is_whole = exchange->sent == size;
        if (is_whole) {
            exchange->part++;
            exchange->sent = 0;
            if (is_last) return;
        }
        if (!is_whole || !(host->state(exchange->answer) & BOLIDE_HAS_ROOM)) {
            exchange->outcome = BOLIDE_SUSPENDED;
            return;
        }
    }
}

// Sends a regular file. Returns false if the path is not one, so that the body sends itself.
static bool send_file(struct exchange *exchange, VALUE path) {
    path = rb_get_path(path);
    int descriptor = open(StringValueCStr(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return false;
    struct stat facts;
    bool is_sent = !fstat(descriptor, &facts) && S_ISREG(facts.st_mode) &&
                   !host->push_file(exchange->answer, descriptor, 0, (uint64_t)facts.st_size, BOLIDE_WHOLE_BODY);
    close(descriptor);
    return is_sent;
}

static void set_head(struct exchange *exchange, struct fields *fields, VALUE status) {
    long code = FIXNUM_P(status) ? FIX2LONG(status) : 0;
    if (!FIXNUM_P(status) && rb_respond_to(status, id_to_i)) code = NUM2LONG(rb_funcall(status, id_to_i, 0));
    if (code < MIN_STATUS || code > MAX_STATUS) refuse("the status is %+" PRIsVALUE ", and must be a number such as 200", status);
    char digits[8];
    int size = snprintf(digits, sizeof digits, "%ld", code);
    exchange->status = (int)code;
    refuse_if(host->status(exchange->answer, digits, (size_t)size), "status", status);
    add_fields(fields, exchange->headers);
}

static void call_with_stream(struct exchange *exchange, VALUE body) {
    rb_funcall(body, id_call, 1, part_of(exchange, stream_class));
    exchange->is_stream_closed = true;
}

static void send_body(struct exchange *exchange) {
    VALUE body = exchange->body;
    bool has_each = false;
    exchange->parts = RB_TYPE_P(body, T_ARRAY) ? body : Qnil;
    // A body that can be an array is in memory already. It is still `each` that gives the parts, because `to_ary` would close
    // a body of Rack 3.
    if (NIL_P(exchange->parts) && rb_respond_to(body, id_to_ary) && (has_each = rb_respond_to(body, id_each))) {
        exchange->parts = rb_ary_new();
        rb_block_call(body, id_each, 0, NULL, gather_yielded, exchange->parts);
    }
    uint32_t state = host->state(exchange->answer);
    if (!NIL_P(exchange->parts)) {
        uint64_t length = 0;
        for (long i = 0; i < RARRAY_LEN(exchange->parts); i++) {
            VALUE part = RARRAY_AREF(exchange->parts, i);
            if (!RB_TYPE_P(part, T_STRING))
                refuse("a part of the body is a value of %" PRIsVALUE ", and must be a string", rb_obj_class(part));
            length += (uint64_t)RSTRING_LEN(part);
        }
        // The answer to HEAD often comes without its body, whose length is not 0 then.
        if (!(state & BOLIDE_HAS_LENGTH) && (length || !(state & BOLIDE_HAS_NO_BODY))) host->set_length(exchange->answer, length);
        if (!(state & BOLIDE_HAS_NO_BODY)) send_parts(exchange);
        return;
    }
    has_each = has_each || rb_respond_to(body, id_each);
    if (!has_each && !rb_respond_to(body, id_call))
        refuse("the body is a value of %" PRIsVALUE ", and must have the method `each` or `call`", rb_obj_class(body));
    if (state & BOLIDE_HAS_NO_BODY) return;
    if (rb_respond_to(body, id_to_path)) {
        VALUE path = rb_funcall(body, id_to_path, 0);
        if (!NIL_P(path) && send_file(exchange, path)) return;
    }
    if (!has_each) call_with_stream(exchange, body);
    else rb_block_call(body, id_each, 0, NULL, write_yielded, (VALUE)exchange);
}

// Calls the application, and sends its answer.
static VALUE serve(VALUE argument) {
    struct work *work = (struct work *)argument;
    struct exchange *exchange;
    VALUE self = TypedData_Make_Struct(input_class, struct exchange, &EXCHANGE, exchange);
    *exchange = (struct exchange){
        .self = self, .env = Qnil, .headers = Qnil, .body = Qnil, .parts = Qnil, .finished = Qnil, .replied = Qnil,
        .error = Qnil, .request = work->request, .answer = work->answer, .thread = pthread_self(), .is_open = true};
    // From here on the exchange is found by its list, also after an exception.
    list(exchange);
    work->exchange = exchange;
    host->body(work->request, &exchange->input);
    VALUE application = rb_ary_entry(applications, (long)host->application(work->request));
    VALUE response = rb_funcall(application, id_call, 1, environment(exchange));
    leave_fork(0);
    VALUE triple = rb_check_array_type(response);
    bool is_triple = !NIL_P(triple) && RARRAY_LEN(triple) == 3;
    if (is_triple) {
        exchange->headers = RARRAY_AREF(triple, 1);
        exchange->body = RARRAY_AREF(triple, 2);
        exchange->must_close = rb_respond_to(exchange->body, id_close);
    }
    if (host->state(exchange->answer) & BOLIDE_IS_TAKEN_OVER) return Qnil;
    if (!is_triple)
        refuse("the application returned a value of %" PRIsVALUE ", and must return an array of status, headers and body",
               rb_obj_class(response));
    struct fields fields = {.exchange = exchange, .hijack = Qnil};
    set_head(exchange, &fields, RARRAY_AREF(triple, 0));
    if (NIL_P(fields.hijack)) send_body(exchange);
    else if (!(host->state(exchange->answer) & BOLIDE_HAS_NO_BODY)) call_with_stream(exchange, fields.hijack);
    return Qnil;
}

static VALUE proceed(VALUE argument) {
    send_parts(((struct work *)argument)->exchange);
    return Qnil;
}

static VALUE close_body(VALUE argument) { return rb_funcall(((struct exchange *)argument)->body, id_close, 0); }

// The callbacks of Rack 3 run in reverse order, and those of Puma in theirs.
static VALUE run_callbacks(VALUE argument) {
    struct exchange *exchange = (struct exchange *)argument;
    ID run_all = rb_intern("run_all");
    if (RARRAY_LEN(exchange->finished)) {
        VALUE status = exchange->status ? INT2FIX(exchange->status) : Qnil;
        rb_funcall(module, run_all, 5, rb_ary_reverse(rb_ary_dup(exchange->finished)), exchange->env, status, exchange->headers,
                   exchange->error);
    }
    if (RARRAY_LEN(exchange->replied)) rb_funcall(module, run_all, 1, exchange->replied);
    return Qnil;
}

static VALUE collect(VALUE nothing) {
    rb_gc_start();
    return nothing;
}

// Calls a function of the end of a request, whose error does not change the answer.
static void run_late(struct exchange *exchange, VALUE (*function)(VALUE), uint32_t *outcome) {
    int state = 0;
    rb_protect(function, (VALUE)exchange, &state);
    leave_fork(state);
    if (state && report(exchange->request, true, take_error()) == BOLIDE_FAILED_FATALLY) *outcome = BOLIDE_FAILED_FATALLY;
}

// Ends a request: its body is closed exactly once. If code runs, the client gets the end of its answer first.
static uint32_t end(struct exchange *exchange, bool is_answered, uint32_t outcome) {
    bool has_callbacks = !NIL_P(exchange->replied) && (RARRAY_LEN(exchange->finished) || RARRAY_LEN(exchange->replied));
    bool must_collect = gc_freq && ++requests % gc_freq == 0;
    if (outcome == BOLIDE_FINISHED && is_answered && (exchange->must_close || has_callbacks || must_collect))
        host->finish(exchange->answer, BOLIDE_MORE_CODE);
    bool must_close = exchange->must_close;
    exchange->must_close = false;
    if (must_close) run_late(exchange, close_body, &outcome);
    if (has_callbacks) run_late(exchange, run_callbacks, &outcome);
    exchange->is_open = false;
    exchange->request = NULL;
    exchange->answer = NULL;
    unlist(exchange);
    if (must_collect) run_late(exchange, collect, &outcome);
    return outcome;
}

// Runs a step of a request with Ruby's lock.
static void *run_step(void *argument) {
    struct work *work = argument;
    int state = 0;
    rb_protect(work->step, (VALUE)work, &state);
    leave_fork(state);
    struct exchange *exchange = work->exchange;
    uint32_t outcome = exchange ? exchange->outcome : BOLIDE_FINISHED;
    if (state) {
        VALUE error = take_error();
        if (exchange) exchange->error = error;
        // The stream tells the application by an error that the client is gone. The log need not have it.
        bool is_silent = exchange && exchange->is_gone && RTEST(rb_obj_is_kind_of(error, rb_eSystemCallError));
        outcome = is_silent ? BOLIDE_FINISHED : report(work->request, true, error);
    }
    *work->pending = NULL;
    if (outcome == BOLIDE_SUSPENDED) {
        exchange->request = NULL;
        exchange->answer = NULL;
        *work->pending = exchange;
    } else if (exchange) {
        bool is_answered = !(host->state(work->answer) & BOLIDE_IS_TAKEN_OVER);
        outcome = end(exchange, is_answered, outcome);
    }
    work->outcome = outcome;
    return NULL;
}

static uint32_t call(void *thread, bolide_request *request, bolide_answer *answer, void **pending) {
    (void)thread;
    struct work work = {.request = request, .answer = answer, .pending = pending, .step = serve};
    rb_thread_call_with_gvl(run_step, &work);
    return work.outcome;
}

static uint32_t resume(void *thread, bolide_answer *answer, void **pending) {
    (void)thread;
    struct work work = {.answer = answer, .exchange = *pending, .pending = pending, .step = proceed};
    work.exchange->answer = answer;
    work.exchange->thread = pthread_self();
    rb_thread_call_with_gvl(run_step, &work);
    return work.outcome;
}

static void *abandon_locked(void *exchange) {
    end(exchange, false, BOLIDE_FINISHED);
    return NULL;
}

static void abandon(void *thread, void *pending) {
    (void)thread;
    rb_thread_call_with_gvl(abandon_locked, pending);
}

// ---- Threads and signals

static void *call_body(void *argument) {
    struct body_call *body = argument;
    body->was_called = true;
    body->body(body->argument);
    return NULL;
}

static VALUE call_unlocked(VALUE argument) {
    rb_thread_call_without_gvl(call_body, (void *)argument, RUBY_UBF_IO, NULL);
    return Qnil;
}

static VALUE finalize(VALUE nothing) {
    ruby_finalize();
    return nothing;
}

// The host serves in `body`, and before the fork it makes the requests of `warmup` there. Signals that the application traps
// interrupt its waits. An error that another thread raises here must not end the worker, so the call is made again if it has not
// begun.
static void without_lock(void (*body)(void *), void *argument) {
    struct body_call call = {body, argument, false};
    for (int tries = 0; !call.was_called && tries < MAX_TRIES; tries++) {
        int state = 0;
        rb_protect(call_unlocked, (VALUE)&call, &state);
        if (state) report(NULL, false, take_error());
    }
    if (!has_left) return;
    // The worker has served its last request, in all threads. Now the blocks of at_exit run, and buffers of files are written.
    int state = 0;
    rb_protect(finalize, Qnil, &state);
}

// What a thread gets tells the first one from the others.
static void *enter(uint32_t number) {
    static char first, other;
    return number ? &other : &first;
}

static void leave(void *thread) {
    if (thread == enter(0)) has_left = true;
}

static VALUE thread_body(void *argument) {
    struct body_call call = *(struct body_call *)argument;
    free(argument);
    for (int tries = 0; !call.was_called && tries < MAX_TRIES; tries++) {
        int state = 0;
        rb_protect(call_unlocked, (VALUE)&call, &state);
        if (state) take_error();
    }
    return Qnil;
}

static VALUE make_thread(VALUE call) { return rb_thread_create(thread_body, (void *)call); }

static void *spawn_locked(void *argument) {
    struct work *work = argument;
    rb_protect(make_thread, (VALUE)work->exchange, &work->result);
    if (work->result) take_error();
    return NULL;
}

static int spawn(void (*body)(void *), void *argument) {
    struct body_call *call = calloc(1, sizeof *call);
    if (!call) return explain("there is not enough memory"), -1;
    *call = (struct body_call){body, argument, false};
    struct work work = {.exchange = (void *)call};
    rb_thread_call_with_gvl(spawn_locked, &work);
    if (!work.result) return 0;
    free(call);
    return explain("Ruby can't make a thread"), -1;
}

static VALUE check_interrupts(VALUE nothing) {
    rb_thread_check_ints();
    return nothing;
}

static void *interrupted_locked(void *argument) {
    struct work *work = argument;
    int state = 0;
    rb_protect(check_interrupts, Qnil, &state);
    if (!state) return NULL;
    // `exit` in a block of Signal.trap ends the worker in good order.
    VALUE error = take_error();
    work->result = RTEST(rb_obj_is_kind_of(error, rb_eSystemExit));
    if (!work->result) report(NULL, false, error);
    return NULL;
}

static int interrupted(void *thread) {
    (void)thread;
    struct work work = {0};
    rb_thread_call_with_gvl(interrupted_locked, &work);
    return work.result;
}

// Logs where Ruby is. It is called in a signal handler, so it allocates nothing.
static void show_stack(void *thread) {
    (void)thread;
    VALUE frames[MAX_FRAMES];
    int lines[MAX_FRAMES];
    char text[MAX_SHOWN_BYTES];
    size_t size = 0;
    int count = rb_profile_frames(0, MAX_FRAMES, frames, lines);
    for (int i = 0; i < count; i++) {
        VALUE path = rb_profile_frame_path(frames[i]), label = rb_profile_frame_base_label(frames[i]);
        if (!RB_TYPE_P(path, T_STRING) || !RB_TYPE_P(label, T_STRING)) continue;
        int wrote = snprintf(text + size, sizeof text - size, "%s%.*s:%d:in `%.*s'\n", size ? "    from " : "Ruby is here: ",
                             (int)RSTRING_LEN(path), RSTRING_PTR(path), lines[i], (int)RSTRING_LEN(label), RSTRING_PTR(label));
        if (wrote < 0 || (size_t)wrote >= sizeof text - size) break;
        size += (size_t)wrote;
    }
    if (size) host->log(text, size);
}

static VALUE fork_process(VALUE nothing) {
    (void)nothing;
    ID name = rb_intern("_fork");
    return rb_funcall(rb_mProcess, rb_respond_to(rb_mProcess, name) ? name : rb_intern("fork"), 0);
}

// Ruby has a thread of its own, which only its own function can stop and start again.
static int fork_prototype(void) {
    int state = 0;
    VALUE pid = rb_protect(fork_process, Qnil, &state);
    if (!state) return NIL_P(pid) ? 0 : NUM2INT(pid);
    take_error();
    errno = EAGAIN;
    return -1;
}

static VALUE become(VALUE number) { return rb_funcall(module, rb_intern("become"), 1, number); }

// ---- Start and load

static VALUE explain_error(VALUE error) { return rb_funcall(module, rb_intern("explain"), 1, error); }

// Calls a function of the start. Returns -1 with an explanation if it raises an error.
static int attempt(VALUE (*function)(VALUE), VALUE argument) {
    int state = 0;
    rb_protect(function, argument, &state);
    if (!state) return 0;
    VALUE error = take_error();
    if (NIL_P(error)) return explain("the application ended its thread"), -1;
    VALUE texts = rb_protect(explain_error, error, &state);
    if (state) {
        take_error();
        return explain(rb_obj_classname(error)), -1;
    }
    VALUE line = RARRAY_AREF(texts, 0), all = RARRAY_AREF(texts, 1);
    if (!NIL_P(all)) log_text(NULL, false, all);
    host->explain(RSTRING_PTR(line), (size_t)RSTRING_LEN(line));
    RB_GC_GUARD(texts);
    return -1;
}

static int after_fork_in_child(uint32_t worker) {
    own_pid = getpid();
    return attempt(become, UINT2NUM(worker));
}

struct source {
    uint32_t number;
    bolide_text path;
};

static VALUE load_file(VALUE argument) {
    struct source *source = (struct source *)argument;
    VALUE path = rb_enc_str_new(source->path.data, (long)source->path.size, rb_filesystem_encoding());
    if (!source->number) rb_gv_set("$0", path);
    VALUE application = rb_funcall(module, rb_intern("load"), 1, path);
    rb_ary_store(applications, (long)source->number, application);
    return Qnil;
}

static int load(uint32_t number, bolide_text path, bolide_text mount) {
    (void)mount;
    own_pid = getpid();
    struct source source = {number, path};
    return attempt(load_file, (VALUE)&source);
}

static VALUE freeze_heap(VALUE nothing) {
    rb_funcall(module, rb_intern("freeze"), 0);
    return nothing;
}

static void freeze(void) {
    int state = 0;
    rb_protect(freeze_heap, Qnil, &state);
    if (state) take_error();
}

static VALUE log_line(VALUE self, VALUE text) {
    (void)self;
    text = rb_obj_as_string(text);
    host->log(RSTRING_PTR(text), (size_t)RSTRING_LEN(text));
    RB_GC_GUARD(text);
    return Qnil;
}

// Names a file of the application, whose change reloads it. Hosts of earlier versions do not watch files.
static VALUE watch_file(VALUE self, VALUE path) {
    (void)self;
    if (host->size > offsetof(bolide_host, watch) && RB_TYPE_P(path, T_STRING))
        host->watch(RSTRING_PTR(path), (size_t)RSTRING_LEN(path));
    return Qnil;
}

static VALUE key(const char *name) {
    VALUE text = rb_enc_interned_str_cstr(name, rb_utf8_encoding());
    rb_gc_register_mark_object(text);
    return text;
}

static VALUE make_class(const char *name) {
    VALUE class = rb_define_class_under(module, name, rb_cObject);
    rb_undef_alloc_func(class);
    return class;
}

static void define_classes(void) {
    input_class = make_class("Input");
    rb_define_method(input_class, "read", input_read, -1);
    rb_define_method(input_class, "gets", input_gets, -1);
    rb_define_method(input_class, "each", input_each, 0);
    rb_define_method(input_class, "rewind", input_rewind, 0);
    rb_define_method(input_class, "size", input_size, 0);
    rb_define_method(input_class, "pos", input_pos, 0);
    rb_define_method(input_class, "eof?", input_eof, 0);
    rb_define_method(input_class, "close", input_close, 0);
    rb_define_method(input_class, "binmode", input_binmode, 0);
    rb_define_method(input_class, "binmode?", input_is_binmode, 0);
    rb_define_method(input_class, "external_encoding", input_encoding, 0);
    hijack_class = make_class("Hijack");
    rb_define_method(hijack_class, "call", take_over, 0);
    hints_class = make_class("EarlyHints");
    rb_define_method(hints_class, "call", send_hints, 1);
    stream_class = make_class("Stream");
    rb_define_method(stream_class, "write", stream_write, -1);
    rb_define_method(stream_class, "<<", stream_append, 1);
    rb_define_method(stream_class, "flush", stream_flush, 0);
    rb_define_method(stream_class, "read", stream_read, -1);
    rb_define_method(stream_class, "read_nonblock", stream_read_nonblock, -1);
    rb_define_method(stream_class, "write_nonblock", stream_write_nonblock, -1);
    rb_define_method(stream_class, "close", stream_close, 0);
    rb_define_method(stream_class, "close_write", stream_close, 0);
    rb_define_method(stream_class, "close_read", stream_nothing, 0);
    rb_define_method(stream_class, "closed?", stream_is_closed, 0);
}

static VALUE option_text(bolide_text text) { return rb_enc_str_new(text.data, (long)text.size, rb_filesystem_encoding()); }

static VALUE prepare(VALUE argument) {
    const bolide_instance *instance = (const bolide_instance *)argument;
    id_call = rb_intern("call"), id_each = rb_intern("each"), id_close = rb_intern("close");
    id_to_path = rb_intern("to_path"), id_to_ary = rb_intern("to_ary"), id_to_i = rb_intern("to_i");
    rb_gc_register_mark_object(module = rb_define_module("Bolide"));
    rb_define_module_function(module, "log", log_line, 1);
    rb_define_module_function(module, "watch", watch_file, 1);
    rb_funcall(rb_mKernel, rb_intern("eval"), 3, rb_utf8_str_new_static(PRELUDE, sizeof PRELUDE - 1), Qnil,
               rb_str_new_cstr("bolide"));
    define_classes();
    rb_gc_register_mark_object(applications = rb_ary_new());
    rb_gc_register_mark_object(rb_data_typed_object_wrap(rb_cObject, &suspended, &ROOTS));
    scheme_key = key("rack.url_scheme"), input_key = key("rack.input"), hijack_key = key("rack.hijack");
    hints_key = key("rack.early_hints"), finished_key = key("rack.response_finished"), replied_key = key("rack.after_reply");
    hijack_io_key = key("rack.hijack_io");
    rb_gc_register_mark_object(template = rb_hash_new());
    rb_hash_aset(template, key("rack.version"), rb_ary_freeze(rb_ary_new_from_args(2, INT2FIX(1), INT2FIX(3))));
    rb_hash_aset(template, key("rack.errors"), rb_eval_string("Bolide::Errors.new"));
    rb_hash_aset(template, key("rack.multithread"), instance->threads > 1 ? Qtrue : Qfalse);
    rb_hash_aset(template, key("rack.multiprocess"), instance->processes > 1 ? Qtrue : Qfalse);
    rb_hash_aset(template, key("rack.run_once"), Qfalse);
    rb_hash_aset(template, key("rack.hijack?"), Qtrue);
    rb_hash_aset(template, scheme_key, rb_str_new_cstr("http"));
    VALUE libraries = rb_ary_new(), files = rb_ary_new();
    for (size_t i = 0; i < instance->option_count; i++) {
        const bolide_pair *option = &instance->options[i];
        VALUE value = option_text(option->value);
        if (is_named(option->name, "lib")) rb_ary_push(libraries, value);
        else if (is_named(option->name, "require")) rb_ary_push(files, value);
        else if (is_named(option->name, "gc-freq")) gc_freq = NUM2ULONG(rb_Integer(value));
        else refuse("its options are rack, rb-require, rb-lib and rb-gc-freq");
    }
    rb_funcall(module, rb_intern("start"), 3, option_text(instance->software), libraries, files);
    splits_values = RTEST(rb_funcall(module, rb_intern("is_rack_2?"), 0));
    return Qnil;
}

// Ruby 3.1 waits for its own children by SIGCHLD. The host's handler follows.
static void on_child(int number, siginfo_t *facts, void *context) {
    const struct sigaction *actions[] = {&ruby_child_action, &host_child_action};
    for (int i = 0; i < 2; i++) {
        if (actions[i]->sa_flags & SA_SIGINFO) actions[i]->sa_sigaction(number, facts, context);
        else if (actions[i]->sa_handler != SIG_DFL && actions[i]->sa_handler != SIG_IGN) actions[i]->sa_handler(number);
    }
}

// Puts the host's handlers back. Ruby keeps those that it needs: of its timer, of a stack that is too deep, and of children.
static void restore_signals(const struct sigaction *before, const bool *is_known) {
    for (int number = 1; number < MAX_SIGNALS; number++) {
        if (!is_known[number] || number == SIGVTALRM || number == SIGSEGV || number == SIGBUS) continue;
        // Commands that the application runs would inherit that the signal is ignored. Ruby's handler does nothing either.
        if (number == SIGPIPE && before[number].sa_handler == SIG_IGN) continue;
        if (number != SIGCHLD) {
            sigaction(number, &before[number], NULL);
            continue;
        }
        host_child_action = before[number];
        sigaction(number, NULL, &ruby_child_action);
        bool has_handler = ruby_child_action.sa_handler != SIG_DFL && ruby_child_action.sa_handler != SIG_IGN;
        struct sigaction both = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP};
        if (has_handler) sigaction(number, &both, NULL);
        else sigaction(number, &before[number], NULL);
    }
}

static int start(const bolide_instance *instance) {
    // Ruby writes into its arguments, and keeps them.
    static char name[] = "bolide", flag[] = "-e", nothing[] = "";
    static char *words[] = {name, flag, nothing, NULL};
    int count = 3;
    struct sigaction before[MAX_SIGNALS];
    bool is_known[MAX_SIGNALS] = {false};
    for (int number = 1; number < MAX_SIGNALS; number++) is_known[number] = !sigaction(number, NULL, &before[number]);
    setlocale(LC_CTYPE, "");
    char **argv = words;
    ruby_sysinit(&count, &argv);
    RUBY_INIT_STACK;
    if (ruby_setup()) return explain("the interpreter can't be made"), -1;
    void *program = ruby_options(count, argv);
    int status = 0;
    bool is_ready = ruby_executable_node(program, &status);
    restore_signals(before, is_known);
    if (!is_ready) return explain("Ruby refuses its options: check RUBYOPT"), -1;
    // Services often run without a locale. Sources and templates are UTF-8 anyway.
    if (!strcmp(nl_langinfo(CODESET), "ANSI_X3.4-1968")) rb_enc_set_default_external(rb_enc_from_encoding(rb_utf8_encoding()));
    own_pid = getpid();
    return attempt(prepare, (VALUE)instance);
}

static const bolide_adapter ADAPTER = {
    .version = BOLIDE_ABI_VERSION, .size = sizeof(bolide_adapter),
    .name = VERSION_OF(RUBY_API_VERSION_MAJOR, RUBY_API_VERSION_MINOR),
    .load = load, .call = call, .enter = enter, .leave = leave, .resume = resume, .abandon = abandon, .start = start,
    .freeze = freeze, .after_fork_in_child = after_fork_in_child, .spawn = spawn, .without_lock = without_lock,
    .interrupted = interrupted, .show_stack = show_stack, .fork = fork_prototype,
};

const bolide_adapter *bolide_adapter_v1(const bolide_host *table) {
    host = table;
    return &ADAPTER;
}
