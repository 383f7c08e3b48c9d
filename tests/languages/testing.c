// The language of the tests, once more in C: `adapters/testing` is the same in Rust. It does all that an adapter for an interpreter
// has to do, and checks what Bolide promises to one. test_plugins.py compiles it, also into adapters that do everything wrong
// (`-DWRONG_…`). Its pages:
//
// | path                    | answer                                                                             |
// | ----------------------- | ---------------------------------------------------------------------------------- |
// | /echo…                  | the method, the target and the body, with a Content-Length                         |
// | /fields, /variables     | the header fields, or all variables, one a line                                    |
// | /application            | the number of the application                                                      |
// | /slow/NAME, /busy/NAME  | as /echo, once the file NAME exists; /busy holds the language in the meantime      |
// | /stream/PARTS/BYTES     | a body in parts; it is suspended while the client is slow                          |
// | /write/PARTS/BYTES      | the same, by a call that waits                                                     |
// | /file/PATH              | a file, as the whole body                                                          |
// | /fail, /fail/P/BYTES    | a failure before the answer, or after these parts                                  |
// | /retire                 | the worker asks for another one in its place                                       |
// | /healthy                | 200, or 503 if the option `testing-color` begins with s                            |
// | /counted                | how often this page was asked for in this process, and before it was forked        |
// | /leave                  | a failure that ends the worker                                                     |
// | /short, /long           | less, and more, than its Content-Length                                            |
// | /hints, /trailers       | 103 before the answer, fields after it                                             |
// | /raw                    | takes the connection over                                                          |
// | /later                  | ends the answer, then appends a line to the file `later`                           |
// | /state                  | what is still kept, what was given back, and how often Bolide broke a promise      |
// | /wrong/WHAT             | a mistake of the adapter                                                           |
#include "bolide_app.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINE = 65536, MAX_APPLICATIONS = 8 };

static const bolide_host *host;
static int applications;
static char color[64] = "none";
// Every third request fails.
static int is_faulty;

// The lock of the language, which has one holder at a time.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int holds;
static int kept, given_back, faults;
// The next release jumps out of the call of the host that it comes from.
static jmp_buf before_write;
static int jumps;

static void check(void) {
    if (!holds)
        __atomic_add_fetch(&faults, 1, __ATOMIC_SEQ_CST);
}

static void acquire(void *thread) {
    (void)thread;
    if (holds)
        __atomic_add_fetch(&faults, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock);
    holds = 1;
}

static void release(void *thread) {
    (void)thread;
    check();
    if (jumps) {
        jumps = 0;
        longjmp(before_write, 1);
    }
    holds = 0;
    pthread_mutex_unlock(&lock);
}

static void say(const char *form, ...) {
    char line[512];
    va_list list;
    va_start(list, form);
    int size = vsnprintf(line, sizeof line, form, list);
    va_end(list);
    host->log(line, (size_t)size);
}

static int refuse(const char *reason) {
    host->explain(reason, strlen(reason));
    return -1;
}

static int is(bolide_text text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

// What is left to send of a suspended answer.
struct sending {
    unsigned parts, sent, bytes, offset;
    int fails;
};

static void begin(bolide_answer *answer, const char *status, const char *length) {
    if (host->status(answer, status, strlen(status)).size != 0)
        faults++;
    host->field(answer, "Content-Type", 12, "text/plain", 10);
    if (length != NULL)
        host->field(answer, "Content-Length", 14, length, strlen(length));
}

static uint32_t answer_text(bolide_answer *answer, const char *status, const char *text, size_t size, long shift) {
    char length[32];
    snprintf(length, sizeof length, "%ld", (long)size + shift);
    begin(answer, status, length);
    while (size > 0) {
        size_t taken = host->push(answer, text, size, 0);
        if (taken == BOLIDE_GONE)
            return BOLIDE_FINISHED;
        text += taken;
        size -= taken;
        // It is small enough for the buffer of an answer, unless a test asks for more.
        if (size > 0 && host->write(answer, text, size) == BOLIDE_GONE)
            return BOLIDE_FINISHED;
        else if (size > 0)
            break;
    }
    return BOLIDE_FINISHED;
}

// Passes as much as the client takes.
static uint32_t send_parts(struct sending *sending, bolide_answer *answer, void **pending) {
    static char part[1 << 20];
    check();
    while (sending->sent < sending->parts) {
        memset(part, 'a' + sending->sent % 26, sending->bytes);
        size_t rest = sending->bytes - sending->offset;
        size_t taken = host->push(answer, part + sending->offset, rest, 0);
        if (taken == BOLIDE_GONE) {
            given_back++;
            free(sending);
            *pending = NULL;
            return BOLIDE_FINISHED;
        }
        sending->offset += taken;
        if (taken == rest) {
            sending->offset = 0;
            sending->sent++;
        }
        if (taken < rest || !(host->state(answer) & BOLIDE_HAS_ROOM)) {
            *pending = sending;
            return BOLIDE_SUSPENDED;
        }
    }
    uint32_t outcome = sending->fails ? BOLIDE_FAILED : BOLIDE_FINISHED;
    given_back++;
    free(sending);
    *pending = NULL;
    return outcome;
}

static uint32_t stream(bolide_answer *answer, void **pending, unsigned parts, unsigned bytes, int fails) {
    struct sending *sending = calloc(1, sizeof *sending);
    sending->parts = parts;
    sending->bytes = bytes;
    sending->fails = fails;
    kept++;
    begin(answer, "200 OK", NULL);
    return send_parts(sending, answer, pending);
}

static uint32_t write_parts(bolide_answer *answer, unsigned parts, unsigned bytes) {
    char *part = malloc(bytes);
    begin(answer, "200 OK", NULL);
    for (unsigned number = 0; number < parts; number++) {
        memset(part, 'a' + number % 26, bytes);
        if (host->write(answer, part, bytes) == BOLIDE_GONE)
            break;
        check();
    }
    free(part);
    return BOLIDE_FINISHED;
}

static uint32_t echo(bolide_request *request, bolide_answer *answer, long shift) {
    static _Thread_local char line[MAX_LINE];
    bolide_text method = {"", 0}, target = {"", 0};
    host->variable(request, "REQUEST_METHOD", 14, &method);
    host->variable(request, "REQUEST_URI", 11, &target);
    bolide_body body;
    host->body(request, &body);
    size_t head = (size_t)snprintf(line, sizeof line, "%.*s %.*s\n", (int)method.size, method.data, (int)target.size, target.data);
    char *text = malloc(head + body.size);
    memcpy(text, line, head);
    if (body.descriptor < 0) {
        memcpy(text + head, body.data, body.size);
    } else {
        ssize_t got = 1;
        for (uint64_t size = 0; size < body.size && got > 0; size += (uint64_t)got)
            got = pread(body.descriptor, text + head + size, body.size - size, (off_t)size);
    }
    uint32_t outcome = answer_text(answer, "200 OK", text, head + body.size, shift);
    free(text);
    return outcome;
}

static uint32_t list(bolide_request *request, bolide_answer *answer, int fields) {
    static _Thread_local char text[MAX_LINE];
    const bolide_pair *pairs;
    size_t count = fields ? host->fields(request, &pairs) : host->variables(request, &pairs), size = 0;
    for (size_t number = 0; number < count && size < sizeof text - 1024; number++)
        size += (size_t)snprintf(text + size, 1024, "%.*s=%.*s\n", (int)pairs[number].name.size, pairs[number].name.data,
                                 (int)pairs[number].value.size, pairs[number].value.data);
    return answer_text(answer, "200 OK", text, size, 0);
}

static void pass_gate(const char *name, int keeps_language) {
    if (!keeps_language)
        release(NULL);
    while (access(name, F_OK) != 0)
        usleep(2000);
    if (!keeps_language)
        acquire(NULL);
}

static uint32_t take_over(bolide_answer *answer) {
    int own = host->take_over(answer);
    if (own < 0)
        return BOLIDE_FAILED;
    const char *text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nhello\n";
    ssize_t written = write(own, text, strlen(text));
    close(own);
    return written > 0 ? BOLIDE_FINISHED : BOLIDE_FAILED;
}

static uint32_t trailers(bolide_answer *answer) {
    host->announce_trailers(answer);
    begin(answer, "200 OK", NULL);
    host->push(answer, "body\n", 5, 0);
    host->trailer(answer, "Checksum", 8, "42", 2);
    return BOLIDE_FINISHED;
}

// Mistakes of an adapter.
static bolide_request *old_request;
static bolide_answer *old_answer;
static void *use_elsewhere(void *answer) {
    host->status(answer, "200 OK", 6);
    host->push(answer, "stolen", 6, 0);
    return NULL;
}

static uint32_t mistake(const char *what, bolide_request *request, bolide_answer *answer, void **pending) {
    if (strcmp(what, "outcome") == 0)
        return 77;
    if (strcmp(what, "suspended") == 0)
        return BOLIDE_SUSPENDED;
    if (strcmp(what, "nothing") == 0)
        return BOLIDE_FINISHED;
    if (strcmp(what, "early-body") == 0)
        return host->push(answer, "body", 4, 0) == BOLIDE_GONE ? BOLIDE_FAILED : BOLIDE_FINISHED;
    if (strcmp(what, "null") == 0) {
        host->status(NULL, "200 OK", 6);
        host->variables(NULL, NULL);
        host->push((bolide_answer *)0x1234, "x", 1, 0);
        host->log(NULL, 100);
        host->explain(NULL, 0);
        host->status(answer, NULL, 0);
        host->push_file(answer, -1, 0, 10, 0);
        return answer_text(answer, "200 OK", "still here\n", 11, 0);
    }
    if (strcmp(what, "head") == 0) {
        char text[512];
        bolide_text refusals[] = {
            host->status(answer, "99 Too low", 10),       host->status(answer, "200 OK\r\nX: y", 12),
            host->status(answer, "words", 5),             host->status(answer, "200 OK", 6),
            host->field(answer, "Bad Name", 8, "x", 1),   host->field(answer, "X", 1, "a\r\nb: c", 7),
            host->field(answer, "Connection", 10, "x", 1),
        };
        int size = 0;
        for (size_t number = 0; number < sizeof refusals / sizeof *refusals; number++)
            size += snprintf(text + size, sizeof text - (size_t)size, "%.*s\n", (int)refusals[number].size, refusals[number].data);
        return answer_text(answer, "200 OK", text, (size_t)size, 0);
    }
    if (strcmp(what, "keep") == 0) {
        old_request = request;
        old_answer = answer;
        return answer_text(answer, "200 OK", "kept\n", 5, 0);
    }
    if (strcmp(what, "elsewhere") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, use_elsewhere, answer);
        pthread_join(thread, NULL);
        return answer_text(answer, "200 OK", "not stolen\n", 11, 0);
    }
    if (strcmp(what, "twice") == 0) {
        begin(answer, "200 OK", "4");
        host->push(answer, "once", 4, 0);
        host->finish(answer, 0);
        host->finish(answer, BOLIDE_MORE_CODE);
        host->status(answer, "404 Not Found", 13);
        host->push(answer, "twice", 5, 0);
        host->fail(answer, 500);
        return BOLIDE_FINISHED;
    }
    if (strcmp(what, "crash") == 0)
        raise(SIGSEGV);
    if (strcmp(what, "abort") == 0)
        abort();
    if (strcmp(what, "exit") == 0)
        exit(0);
    if (strcmp(what, "longjmp") == 0) {
        jumps = 1;
        if (setjmp(before_write) == 0)
            return write_parts(answer, 40, 1000000);
        say("jumped over a call of the host");
        return host->push(answer, "more", 4, 0) == BOLIDE_GONE ? BOLIDE_FAILED : BOLIDE_FINISHED;
    }
    if (strcmp(what, "never") == 0)
        for (;;)
            usleep(10000);
    if (strcmp(what, "abandoned") == 0)
        *pending = calloc(1, sizeof(struct sending)), kept++;
    return BOLIDE_FAILED;
}

static uint32_t call(void *thread, bolide_request *request, bolide_answer *answer, void **pending) {
    (void)thread;
    bolide_text path = {"", 0};
    char text[1024], name[512] = "";
    unsigned parts = 0, bytes = 0;
    check();
    host->variable(request, "PATH_INFO", 9, &path);
    snprintf(text, sizeof text, "%.*s", (int)path.size, path.data);
    static int requests;
    if (is_faulty && ++requests % 3 == 0)
        return BOLIDE_FAILED;
    if (sscanf(text, "/stream/%u/%u", &parts, &bytes) == 2)
        return stream(answer, pending, parts, bytes, 0);
    if (sscanf(text, "/fail/%u/%u", &parts, &bytes) == 2)
        return stream(answer, pending, parts, bytes, 1);
    if (sscanf(text, "/write/%u/%u", &parts, &bytes) == 2)
        return write_parts(answer, parts, bytes);
    if (strcmp(text, "/fail") == 0) {
        host->log_error(request, "an exception of the tests\n  at line 3", 37);
        return BOLIDE_FAILED;
    }
    if (strcmp(text, "/retire") == 0)
        host->retire();
    if (strcmp(text, "/healthy") == 0 && color[0] == 's')
        return answer_text(answer, "503 Service Unavailable", "sick\n", 5, 0);
    if (strcmp(text, "/counted") == 0) {
        static int counted;
        int size = snprintf(name, sizeof name, "%d\n", ++counted);
        return answer_text(answer, "200 OK", name, (size_t)size, 0);
    }
    if (strcmp(text, "/leave") == 0)
        return BOLIDE_FAILED_FATALLY;
    if (strcmp(text, "/fields") == 0 || strcmp(text, "/variables") == 0)
        return list(request, answer, text[1] == 'f');
    if (sscanf(text, "/slow/%500s", name) == 1 || sscanf(text, "/busy/%500s", name) == 1)
        pass_gate(name, text[1] == 'b');
    else if (sscanf(text, "/file/%500s", name) == 1) {
        int file = open(name, O_RDONLY | O_CLOEXEC);
        struct stat found;
        if (file < 0 || fstat(file, &found) != 0)
            return answer_text(answer, "404 Not Found", "no file\n", 8, 0);
        begin(answer, "200", NULL);
        host->push_file(answer, file, 0, (uint64_t)found.st_size, BOLIDE_WHOLE_BODY);
        close(file);
        return BOLIDE_FINISHED;
    } else if (sscanf(text, "/wrong/%500s", name) == 1) {
        return mistake(name, request, answer, pending);
    } else if (strcmp(text, "/application") == 0) {
        int size = snprintf(name, sizeof name, "%u of %d, %s\n", host->application(request), applications, color);
        return answer_text(answer, "200 OK", name, (size_t)size, 0);
    } else if (strcmp(text, "/state") == 0) {
        if (old_answer != NULL)
            host->push(old_answer, "old", 0, 0), host->variables(old_request, NULL);
        int size = snprintf(name, sizeof name, "%d %d\n", kept - given_back, faults);
        return answer_text(answer, "200 OK", name, (size_t)size, 0);
    } else if (strcmp(text, "/hints") == 0) {
        bolide_pair hint = {{"Link", 4}, {"</style.css>; rel=preload", 25}};
        host->inform(answer, 103, &hint, 1);
    } else if (strcmp(text, "/trailers") == 0) {
        return trailers(answer);
    } else if (strcmp(text, "/raw") == 0) {
        return take_over(answer);
    } else if (strcmp(text, "/later") == 0) {
        uint32_t outcome = answer_text(answer, "200 OK", "first\n", 6, 0);
        host->finish(answer, BOLIDE_MORE_CODE);
        pass_gate("later", 0);
        say("later");
        return outcome;
    } else if (strcmp(text, "/noted") == 0) {
        host->note(answer, "basket", 6, "seven", 5);
    } else if (strncmp(text, "/echo", 5) != 0 && strcmp(text, "/short") != 0 && strcmp(text, "/long") != 0 && strcmp(text, "/retire") != 0 &&
               strcmp(text, "/healthy") != 0) {
        return answer_text(answer, "404 Not Found", "nothing is here\n", 16, 0);
    }
    return echo(request, answer, strcmp(text, "/short") == 0 ? 1 : strcmp(text, "/long") == 0 ? -1 : 0);
}

static uint32_t resume(void *thread, bolide_answer *answer, void **pending) {
    (void)thread;
    return send_parts(*pending, answer, pending);
}

static void abandon(void *thread, void *pending) {
    (void)thread;
    check();
    given_back++;
    free(pending);
}

static bolide_text watched;

static int start(const bolide_instance *instance) {
    say("software %.*s, %u processes, %u threads, generation %u", (int)instance->software.size, instance->software.data,
        instance->processes, instance->threads, instance->generation);
    for (size_t number = 0; number < instance->option_count; number++) {
        bolide_pair option = instance->options[number];
        if (is(option.name, "color"))
            snprintf(color, sizeof color, "%.*s", (int)option.value.size, option.value.data);
        else if (is(option.name, "faulty"))
            is_faulty = 1;
        else if (is(option.name, "watch"))
            watched = option.value;
        else if (is(option.name, "start") && is(option.value, "fails"))
            return refuse("the option `testing-start` wants it");
    }
    return 0;
}

static int load(uint32_t number, bolide_text source, bolide_text mount) {
    say("loads %u: %.*s at \"%.*s\"", number, (int)source.size, source.data, (int)mount.size, mount.data);
    applications++;
    if (watched.size)
        host->watch(watched.data, watched.size);
    if (is(source, "broken"))
        return refuse("line 3: this application\nis broken");
    if (is(source, "silent"))
        return -1;
    if (is(source, "crashing"))
        raise(SIGSEGV);
    return 0;
}

static void before_fork(void) { say("before the fork"); }
static void after_fork_in_parent(void) { say("after the fork"); }

#ifdef OWN_FORK
static int own_fork(void) {
    say("forks by itself");
    return fork();
}
#endif

static int after_fork_in_child(uint32_t worker) {
    say("worker %u of the tests", worker);
    return 0;
}

static void *enter(uint32_t thread) {
    static char places[64];
#ifndef WITHOUT_LOCK
    acquire(NULL);
#else
    holds = 1;
#endif
    return &places[thread % 64];
}

static void leave(void *thread) {
#ifndef WITHOUT_LOCK
    release(thread);
#endif
    say("a thread leaves");
}

static int on_signal(void *thread, uint8_t number) {
    (void)thread;
    say("signal %u of the tests", number);
    return number == 99 ? refuse("99 is too much") : 0;
}

static void show_stack(void *thread) {
    (void)thread;
    static const char line[] = "the stack of the tests\n";
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0)
        _exit(9);
}

static void freeze(void) { say("freezes"); }

#ifdef WITHOUT_LOCK
static void without_lock(void (*body)(void *), void *argument) {
    say("serves without the lock");
    body(argument);
}
#endif

#ifdef LOOP
// The same with an event loop: an exchange is kept while its body arrives, its gate is closed, or its client is slow.
#include <sys/epoll.h>

enum { MAX_KEPT = 64, LOOK_MS = 5 };

struct own_exchange {
    bolide_exchange id;
    int is_echo, has_begun;
    char gate[256];
    char *unsent;
    size_t size;
    unsigned parts, bytes;
};

static struct own_exchange *all[MAX_KEPT];

static void forget(struct own_exchange *own) {
    for (int place = 0; place < MAX_KEPT; place++)
        if (all[place] == own)
            all[place] = NULL;
    given_back++;
    free(own->unsent);
    free(own);
}

// Returns 0 if nothing has arrived yet.
static int take_part(struct own_exchange *own, bolide_stream *stream) {
    bolide_text part;
    uint32_t bits = host->take_body(stream, &part);
    own->unsent = realloc(own->unsent, part.size + 1);
    memcpy(own->unsent, part.data, part.size);
    own->size = part.size;
    own->is_echo = (bits & BOLIDE_MORE_BODY) != 0;
    return !own->is_echo || own->size > 0;
}

// Returns 1 if the answer is complete.
static int go_on(struct own_exchange *own, bolide_answer *answer, bolide_stream *stream) {
    check();
    if (own->gate[0] != 0)
        return 0;
    if (!own->has_begun) {
        // The client may wait for the word to send its body, which can't follow the head.
        if (own->is_echo && !take_part(own, stream))
            return 0;
        begin(answer, "200 OK", NULL);
        own->has_begun = 1;
    }
    for (;;) {
        while (own->size > 0) {
            size_t taken = host->push(answer, own->unsent, own->size, 0);
            if (taken == BOLIDE_GONE)
                return 0;
            memmove(own->unsent, own->unsent + taken, own->size - taken);
            own->size -= taken;
            if (own->size > 0 || !(host->state(answer) & BOLIDE_HAS_ROOM))
                return 0;
        }
        if (own->parts > 0) {
            own->unsent = realloc(own->unsent, own->bytes);
            memset(own->unsent, 'a' + --own->parts % 26, own->bytes);
            own->size = own->bytes;
        } else if (own->is_echo && stream != NULL) {
            if (!take_part(own, stream))
                return 0;
        } else {
            host->finish(answer, 0);
            return 1;
        }
    }
}

static uint32_t call_in_loop(void *thread, bolide_request *request, bolide_answer *answer, void **pending) {
    bolide_text path = {"", 0};
    char text[1024];
    unsigned parts = 0, bytes = 0;
    host->variable(request, "PATH_INFO", 9, &path);
    snprintf(text, sizeof text, "%.*s", (int)path.size, path.data);
    int is_stream = sscanf(text, "/stream/%u/%u", &parts, &bytes) == 2;
    if (!is_stream && strncmp(text, "/echo", 5) != 0 && strncmp(text, "/slow/", 6) != 0)
        return call(thread, request, answer, pending);
    struct own_exchange *own = calloc(1, sizeof *own);
    kept++;
    own->id = host->exchange(request);
    own->is_echo = !is_stream;
    own->parts = parts;
    own->bytes = bytes;
    if (text[1] == 's' && !is_stream)
        snprintf(own->gate, sizeof own->gate, "%.200s", text + 6);
    if (go_on(own, answer, host->stream(request))) {
        forget(own);
        return BOLIDE_FINISHED;
    }
    for (int place = 0; place < MAX_KEPT; place++)
        if (all[place] == NULL) {
            all[place] = own;
            break;
        }
    *pending = own;
    return BOLIDE_ONGOING;
}

static void client_event(void *thread, bolide_answer *answer, bolide_stream *stream, void *pending) {
    (void)thread;
    go_on(pending, answer, stream);
}

static void abandon_in_loop(void *thread, void *pending) {
    (void)thread;
    check();
    forget(pending);
}

static void open_gate(void *argument, bolide_answer *answer, bolide_stream *stream) {
    struct own_exchange *own = argument;
    own->gate[0] = 0;
    go_on(own, answer, stream);
}

static int run(bolide_loop *worker) {
    int poll = epoll_create1(EPOLL_CLOEXEC), status = 0;
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(poll, EPOLL_CTL_ADD, host->loop_descriptor(worker), &event);
    host->loop_start(worker);
    for (int64_t wait = 0;;) {
        wait = wait == BOLIDE_AGAIN || host->wants_turn(worker) ? 0 : wait == BOLIDE_NO_TIMER || wait > LOOK_MS ? LOOK_MS : wait;
        epoll_wait(poll, &event, 1, (int)wait);
        wait = host->turn(worker);
        if (wait == BOLIDE_DRAINED)
            break;
        for (int place = 0; place < MAX_KEPT; place++)
            if (all[place] != NULL && all[place]->gate[0] != 0 && access(all[place]->gate, F_OK) == 0)
                host->visit(worker, all[place]->id, open_gate, all[place]);
    }
    bolide_exchange none = {~0ull, 7};
    if (host->visit(worker, none, open_gate, NULL) != BOLIDE_ENDED)
        status = refuse("an exchange that never was is there");
    close(poll);
    return status;
}
#endif

static bolide_adapter adapter = {
    .version = BOLIDE_ABI_VERSION,
    .size = sizeof adapter,
    .name = "Testing 1.0",
    .load = load,
#ifdef LOOP
    .call = call_in_loop,
    .abandon = abandon_in_loop,
    .run = run,
    .client_event = client_event,
#else
    .call = call,
    .resume = resume,
    .abandon = abandon,
#endif
    .start = start,
    .freeze = freeze,
    .before_fork = before_fork,
    .after_fork_in_parent = after_fork_in_parent,
    .after_fork_in_child = after_fork_in_child,
    .enter = enter,
    .leave = leave,
    .release = release,
    .acquire = acquire,
    .signal = on_signal,
    .show_stack = show_stack,
#ifdef WITHOUT_LOCK
    .without_lock = without_lock,
#endif
#ifdef FLAGS
    .flags = FLAGS,
#endif
#ifdef OWN_FORK
    .fork = own_fork,
#endif
};

#ifndef SYMBOL
#define SYMBOL bolide_adapter_v1
#endif

const bolide_adapter *SYMBOL(const bolide_host *given) {
    host = given;
#ifdef WRONG_VERSION
    adapter.version = 2;
#endif
#ifdef WRONG_SIZE
    adapter.size = 12;
#endif
#ifdef WRONG_CALL
    adapter.call = NULL;
#endif
#ifdef WRONG_NULL
    host->explain("no license", 10);
    return NULL;
#endif
#ifdef MINIMAL
    static bolide_adapter minimal;
    minimal.version = BOLIDE_ABI_VERSION;
    minimal.size = offsetof(bolide_adapter, start);
    minimal.name = "Minimal";
    minimal.load = load;
    minimal.call = call;
    return &minimal;
#else
    return &adapter;
#endif
}
