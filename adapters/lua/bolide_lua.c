// Applications in Lua for Bolide: WSAPI, as uWSGI understands it. For Lua 5.1 to 5.4 and LuaJIT.
// bolide-build: pkg-config lua5.4 lua-5.4 lua54 lua5.3 lua-5.3 lua53 lua5.2 lua5.1 lua-5.1 luajit lua
// bolide-build: debian liblua5.4-dev
//
// The prototype makes one Lua state for each thread of a worker, and loads the applications into each of them. Workers are
// forks of it, so they share this memory, and all threads have the same code even if the files change later. A state serves one
// thread at a time. A suspended answer continues in its own state, in whichever thread the host resumes it.
//
// It knows Bolide only by bolide_app.h. Prototypes and workers run it.

#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<luajit.h>)
#include <luajit.h>
#define LANGUAGE LUAJIT_VERSION
#else
#define LANGUAGE LUA_VERSION
#endif

#include "bolide_app.h"

#define INPUT "bolide.input"
enum { MAX_LOGGED_BYTES = 8192, MIN_STATUS = 100, MAX_STATUS = 999 };

struct state {
    pthread_mutex_t lock;
    lua_State *L;
    lua_State *volatile running;  // the coroutine that runs, for the signal handler
    atomic_uint suspended;        // answers that continue here
    unsigned long requests;
    int on_error, applications, errors;  // references in the registry
};

struct thread {
    uint32_t number;
    struct state *volatile used;
};

// A request as Lua sees it: the object `input`. It outlives its request if the application keeps it, and is closed then.
struct input {
    struct state *state;
    bolide_body body;
    uint64_t at;   // the position of `read`
    size_t sent;   // how much of the current part was sent
    bool is_open;
};

// What a protected call works on.
struct work {
    struct state *state;
    bolide_request *request;
    bolide_answer *answer;
    struct input *input;
    uint32_t outcome;
    // For a file that is loaded.
    const char *path;
    int number;  // of the application, or 0 if what the file returns does not matter
    bool has_run;
};

static const bolide_host *host;
static struct state *states;
static uint32_t state_count;
static unsigned long gc_freq;

// `print` and `error` of WSAPI write to the log. A signal handler needs to know which coroutine runs, because a hook that it
// sets acts on one coroutine only, and Lua does not tell from outside. So each one is noted when it is resumed. It is an
// argument of `back` so that it exists as long as it is noted.
static const char PRELUDE[] =
    "local log, switch = ...\n"
    "local create, resume, close = coroutine.create, coroutine.resume, coroutine.close\n"
    "local concat, error, select, tostring = table.concat, error, select, tostring\n"
    "local function line(between, ...)\n"
    "    local words = {...}\n"
    "    for number = 1, select('#', ...) do words[number] = tostring(words[number]) end\n"
    "    log(concat(words, between))\n"
    "end\n"
    "local function back(co, ...) switch() return ... end\n"
    "local function resume_noted(co, ...) switch(co) return back(co, resume(co, ...)) end\n"
    "local function unwrap(co, is_fine, ...)\n"
    "    if is_fine then return ... end\n"
    "    if close then close(co) end\n"
    "    error(..., 0)\n"
    "end\n"
    "function print(...) line('\\t', ...) end\n"
    "coroutine.resume = resume_noted\n"
    "function coroutine.wrap(body)\n"
    "    local co = create(body)\n"
    "    return function(...) return unwrap(co, resume_noted(co, ...)) end\n"
    "end\n"
    "return {write = function(self, ...) line('', ...) return self end}\n";

static void explain(const char *reason) { host->explain(reason, strlen(reason)); }

// Makes a text with a traceback of any error value.
static int on_error(lua_State *L) {
    lua_settop(L, 1);
    if (luaL_callmeta(L, 1, "__tostring")) lua_replace(L, 1);
    if (!lua_isstring(L, 1)) {
        lua_pushfstring(L, "the error is not a text, but a %s value", luaL_typename(L, 1));
        lua_replace(L, 1);
    }
    lua_pushvalue(L, lua_upvalueindex(1));  // debug.traceback
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 2);
    lua_call(L, 2, 1);
    return 1;
}

// Calls a function that Lua may leave by an error. The text of the error is on the stack if it returns false.
static bool protect(struct state *state, lua_CFunction function, struct work *work) {
    lua_State *L = state->L;
    // A hook for an earlier request is out of date.
    lua_sethook(L, NULL, 0, 0);
    lua_settop(L, 0);
    work->state = state;
    state->running = L;
    lua_rawgeti(L, LUA_REGISTRYINDEX, state->on_error);
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, work);
    bool is_fine = lua_pcall(L, 1, 0, 1) == 0;
    state->running = L;
    return is_fine;
}

static const char *error_of(struct state *state) {
    const char *text = lua_tostring(state->L, -1);
    return text ? text : "an error without a text";
}

static int log_line(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    host->log(text, size);
    return 0;
}

// Notes the coroutine that runs from now on: the given one, or the caller.
static int switch_coroutine(lua_State *L) {
    struct state *state = lua_touserdata(L, lua_upvalueindex(1));
    lua_State *next = lua_tothread(L, 1);
    state->running = next ? next : L;
    return 0;
}

// Returns up to a number of bytes of the body, or all that is left without a number or with 0, and "" at the end.
static int read_input(lua_State *L) {
    struct input *input = luaL_checkudata(L, 1, INPUT);
    if (!input->is_open) return luaL_error(L, "the request is over, so its input can't be read any more");
    uint64_t wanted = input->body.size - input->at;
    if (lua_isnumber(L, 2)) {
        lua_Number count = lua_tonumber(L, 2);
        luaL_argcheck(L, count >= 0, 2, "a number of bytes is expected");
        if (count > 0 && count < (lua_Number)wanted) wanted = (uint64_t)count;
    } else if (!lua_isnoneornil(L, 2)) {
        const char *format = luaL_checkstring(L, 2);
        bool is_all = !*format || !strcmp(format, "*a") || !strcmp(format, "a");
        luaL_argcheck(L, is_all, 2, "a number of bytes or \"*a\" is expected");
    }
    if (input->body.descriptor < 0) {
        lua_pushlstring(L, input->body.data + input->at, (size_t)wanted);
        input->at += wanted;
        return 1;
    }
    luaL_Buffer buffer;
    luaL_buffinit(L, &buffer);
    while (wanted > 0) {
        size_t part = wanted < LUAL_BUFFERSIZE ? (size_t)wanted : LUAL_BUFFERSIZE;
        ssize_t count = pread(input->body.descriptor, luaL_prepbuffer(&buffer), part, (off_t)input->at);
        if (count <= 0) return luaL_error(L, "the body can't be read: %s", count ? strerror(errno) : "its file is too short");
        luaL_addsize(&buffer, (size_t)count);
        input->at += (uint64_t)count;
        wanted -= (uint64_t)count;
    }
    luaL_pushresult(&buffer);
    return 1;
}

// Replaces a number by its text. Lua 5.3 and later write 5.0 for a number that was calculated, which is no Content-Length.
static bool make_text(lua_State *L, int index) {
    lua_Number number = lua_tonumber(L, index);
    if (lua_type(L, index) == LUA_TNUMBER && number >= 0 && number < 1e15 && number == (lua_Number)(int64_t)number) {
        char digits[24];
        lua_pushlstring(L, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number));
        lua_replace(L, index);
    }
    return lua_isstring(L, index);
}

static void refuse(lua_State *L, bolide_text why, const char *what, const char *text) {
    if (!why.size) return;
    lua_pushlstring(L, why.data, why.size);
    luaL_error(L, "the %s \"%s\" is refused: %s", what, text, lua_tostring(L, -1));
}

// Adds a field. The name and the value are the two values on top.
static void add_field(lua_State *L, bolide_answer *answer) {
    int value = lua_gettop(L), name = value - 1;
    if (lua_type(L, name) != LUA_TSTRING) luaL_error(L, "the name of a header is a %s value", luaL_typename(L, name));
    const char *label = lua_tostring(L, name);
    if (!make_text(L, value)) luaL_error(L, "the value of the header \"%s\" is a %s value", label, luaL_typename(L, value));
    size_t name_size, value_size;
    lua_tolstring(L, name, &name_size);
    const char *text = lua_tolstring(L, value, &value_size);
    refuse(L, host->field(answer, label, name_size, text, value_size), "header", label);
}

static void set_head(lua_State *L, bolide_answer *answer, int status, int headers) {
    double code = lua_type(L, status) == LUA_TNUMBER ? lua_tonumber(L, status) : MIN_STATUS;
    if (!(code >= MIN_STATUS && code <= MAX_STATUS) || !make_text(L, status))
        luaL_error(L, "the status is a %s value, and must be a number such as 200, or a text such as \"200 OK\"",
                   luaL_typename(L, status));
    if (!lua_istable(L, headers)) luaL_error(L, "the headers are a %s value, and must be a table", luaL_typename(L, headers));
    size_t size;
    const char *line = lua_tolstring(L, status, &size);
    refuse(L, host->status(answer, line, size), "status", line);
    lua_pushnil(L);
    while (lua_next(L, headers)) {
        int value = lua_gettop(L), name = value - 1;
        if (lua_istable(L, value)) {
            for (int number = 1; lua_pushvalue(L, name), lua_rawgeti(L, value, number), !lua_isnil(L, -1); number++) {
                add_field(L, answer);
                lua_pop(L, 2);
            }
        } else {
            lua_pushvalue(L, name);
            lua_pushvalue(L, value);
            add_field(L, answer);
        }
        lua_settop(L, name);
    }
}

// Keeps the answer until the host resumes it. On top are the input, the iterator, and the part whose rest was not sent, or nil.
static void suspend(lua_State *L, struct work *work) {
    int part = lua_gettop(L);
    lua_pushlightuserdata(L, work->input);
    lua_createtable(L, 3, 0);
    for (int number = 1; number <= 3; number++) {
        lua_pushvalue(L, part - 3 + number);
        lua_rawseti(L, -2, number);
    }
    lua_rawset(L, LUA_REGISTRYINDEX);
    work->outcome = BOLIDE_SUSPENDED;
}

// Sends parts as far as the client reads. On top are the input, the iterator or nil, and a part or nil.
static void send_body(lua_State *L, struct work *work) {
    struct input *input = work->input;
    int part = lua_gettop(L), iterator = part - 1;
    work->outcome = BOLIDE_FINISHED;
    for (;;) {
        if (lua_isnil(L, part)) {
            if (lua_isnil(L, iterator)) return;
            lua_pushvalue(L, iterator);
            lua_call(L, 0, 1);
            lua_replace(L, part);
            input->sent = 0;
            if (lua_isnil(L, part)) return;
            if (lua_type(L, part) != LUA_TSTRING)
                luaL_error(L, "a part of the body is a %s value, and must be a string", luaL_typename(L, part));
        }
        size_t size;
        const char *bytes = lua_tolstring(L, part, &size);
        size_t taken = host->push(work->answer, bytes + input->sent, size - input->sent, 0);
        if (taken == BOLIDE_GONE) return;
        input->sent += taken;
        bool is_whole = input->sent == size;
        if (is_whole) {
            lua_pushnil(L);
            lua_replace(L, part);
            if (lua_isnil(L, iterator)) return;
        }
        if (!is_whole || !(host->state(work->answer) & BOLIDE_HAS_ROOM)) {
            suspend(L, work);
            return;
        }
    }
}

// Pushes the table of WSAPI.
static void push_environment(lua_State *L, struct work *work, int input) {
    const bolide_pair *pairs;
    size_t count = host->variables(work->request, &pairs);
    lua_createtable(L, 0, (int)count + 3);
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "CONTENT_TYPE");
    for (size_t i = 0; i < count; i++) {
        lua_pushlstring(L, pairs[i].name.data, pairs[i].name.size);
        lua_pushlstring(L, pairs[i].value.data, pairs[i].value.size);
        lua_rawset(L, -3);
    }
    lua_pushvalue(L, input);
    lua_setfield(L, -2, "input");
    lua_rawgeti(L, LUA_REGISTRYINDEX, work->state->errors);
    lua_setfield(L, -2, "error");
}

// Serves a request: it calls the application, and sends its answer.
static int serve(lua_State *L) {
    struct work *work = lua_touserdata(L, 1);
    enum { INPUT_AT = 2, STATUS, HEADERS, BODY };
    struct input *input = lua_newuserdata(L, sizeof *input);
    *input = (struct input){.state = work->state, .is_open = true};
    luaL_getmetatable(L, INPUT);
    lua_setmetatable(L, INPUT_AT);
    work->input = input;
    host->body(work->request, &input->body);
    lua_rawgeti(L, LUA_REGISTRYINDEX, work->state->applications);
    lua_rawgeti(L, -1, (int)host->application(work->request) + 1);
    lua_remove(L, -2);
    push_environment(L, work, INPUT_AT);
    lua_call(L, 1, 3);
    int type = lua_type(L, BODY);
    if (type == LUA_TNUMBER || type == LUA_TBOOLEAN)
        luaL_error(L, "the body is a %s value, and must be a function that returns the next part", luaL_typename(L, BODY));
    set_head(L, work->answer, STATUS, HEADERS);
    bool is_text = type == LUA_TSTRING;
    if (is_text) {
        size_t size;
        lua_tolstring(L, BODY, &size);
        host->set_length(work->answer, size);
    }
    if (host->state(work->answer) & BOLIDE_HAS_NO_BODY) return 0;
    lua_pushvalue(L, INPUT_AT);
    if (is_text) lua_pushnil(L);
    lua_pushvalue(L, BODY);
    if (!is_text) lua_pushnil(L);
    send_body(L, work);
    return 0;
}

static int proceed(lua_State *L) {
    struct work *work = lua_touserdata(L, 1);
    lua_pushlightuserdata(L, work->input);
    lua_rawget(L, LUA_REGISTRYINDEX);
    for (int number = 1; number <= 3; number++) lua_rawgeti(L, 2, number);
    send_body(L, work);
    return 0;
}

static int collect(lua_State *L) {
    lua_gc(L, LUA_GCCOLLECT, 0);
    return 0;
}

static void log_error(struct state *state, const char *method, const char *uri) {
    char text[MAX_LOGGED_BYTES];
    int size = snprintf(text, sizeof text, "%s %s: %s", method, uri, error_of(state));
    host->log(text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
}

static void collect_garbage(struct state *state) {
    if (!protect(state, collect, &(struct work){0})) log_error(state, "garbage", "collection");
}

// Takes a state that serves no other thread, if possible one without an answer that has to continue. There are as many states as
// threads, so one is free.
static struct state *take_state(struct thread *thread) {
    for (uint32_t i = 0; i < 2 * state_count; i++) {
        struct state *state = &states[(thread->number + i) % state_count];
        if (i < state_count && atomic_load(&state->suspended)) continue;
        if (!pthread_mutex_trylock(&state->lock)) return state;
    }
    pthread_mutex_lock(&states[thread->number % state_count].lock);
    return &states[thread->number % state_count];
}

// Ends a request in its state. Its input is still there: the state has not collected garbage since it was in use.
static void end_request(struct state *state, struct input *input, bool was_suspended) {
    if (input) input->is_open = false;
    if (!was_suspended) return;
    lua_settop(state->L, 0);
    lua_pushlightuserdata(state->L, input);
    lua_pushnil(state->L);
    lua_rawset(state->L, LUA_REGISTRYINDEX);
    atomic_fetch_sub(&state->suspended, 1);
}

// Runs a step of a request in its state, and gives the state back.
static uint32_t run(struct thread *thread, struct work *work, lua_CFunction step, void **pending) {
    struct state *state = work->state;
    bool was_suspended = work->input != NULL;
    thread->used = state;
    if (!protect(state, step, work)) {
        bolide_text method = {"an answer", 9}, uri = {"that was suspended", 18};
        if (!was_suspended) {
            host->variable(work->request, "REQUEST_METHOD", 14, &method);
            host->variable(work->request, "REQUEST_URI", 11, &uri);
        }
        char words[2][1024];
        snprintf(words[0], sizeof words[0], "%.*s", (int)method.size, method.data);
        snprintf(words[1], sizeof words[1], "%.*s", (int)uri.size, uri.data);
        log_error(state, words[0], words[1]);
        work->outcome = BOLIDE_FAILED;
    }
    if (work->outcome == BOLIDE_SUSPENDED) {
        if (!was_suspended) atomic_fetch_add(&state->suspended, 1);
        *pending = work->input;
    } else {
        end_request(state, work->input, was_suspended);
        *pending = NULL;
        if (gc_freq && ++state->requests % gc_freq == 0) {
            if (work->outcome == BOLIDE_FINISHED) host->finish(work->answer, BOLIDE_MORE_CODE);
            collect_garbage(state);
        }
    }
    thread->used = NULL;
    pthread_mutex_unlock(&state->lock);
    return work->outcome;
}

static uint32_t call(void *thread, bolide_request *request, bolide_answer *answer, void **pending) {
    struct work work = {.state = take_state(thread), .request = request, .answer = answer};
    return run(thread, &work, serve, pending);
}

static uint32_t resume(void *thread, bolide_answer *answer, void **pending) {
    struct input *input = *pending;
    struct work work = {.state = input->state, .answer = answer, .input = input};
    pthread_mutex_lock(&work.state->lock);
    return run(thread, &work, proceed, pending);
}

static void abandon(void *thread, void *pending) {
    (void)thread;
    struct input *input = pending;
    struct state *state = input->state;
    pthread_mutex_lock(&state->lock);
    end_request(state, input, true);
    pthread_mutex_unlock(&state->lock);
}

// The hook of a request that takes too long: it logs where Lua is, once.
static void show(lua_State *L, lua_Debug *at) {
    (void)at;
    lua_sethook(L, NULL, 0, 0);
    lua_getfield(L, LUA_REGISTRYINDEX, "bolide.traceback");
    lua_pushliteral(L, "Lua is here:");
    lua_call(L, 1, 1);
    size_t size;
    const char *text = lua_tolstring(L, -1, &size);
    if (text) host->log(text, size);
    lua_pop(L, 1);
}

static void show_stack(void *thread) {
    struct state *state = ((struct thread *)thread)->used;
    // lua_sethook is what a signal handler may call.
    if (state) lua_sethook(state->running, show, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

// Runs a file. What an application's file returns is the application.
static int run_file(lua_State *L) {
    struct work *work = lua_touserdata(L, 1);
    if (luaL_loadfile(L, work->path)) return lua_error(L);
    work->has_run = true;
    lua_call(L, 0, 1);
    if (!work->number) return 0;
    if (lua_istable(L, 2)) {
        lua_getfield(L, 2, "run");
        lua_replace(L, 2);
    }
    if (!lua_isfunction(L, 2))
        return luaL_error(L, "%s must return a function, or a table with the function `run` (WSAPI): it returns a %s value",
                          work->path, luaL_typename(L, 2));
    lua_rawgeti(L, LUA_REGISTRYINDEX, work->state->applications);
    lua_pushvalue(L, 2);
    lua_rawseti(L, -2, work->number);
    return 0;
}

// Runs a file in each state. Returns 0, or -1 with an explanation.
static int run_everywhere(bolide_text path, int number) {
    char name[4096];
    if (path.size >= sizeof name) return explain("the path is too long"), -1;
    memcpy(name, path.data, path.size);
    name[path.size] = 0;
    host->watch(name, path.size);
    for (uint32_t i = 0; i < state_count; i++) {
        struct work work = {.path = name, .number = number};
        if (protect(&states[i], run_file, &work)) continue;
        // The first line is the error, and has the file and the line. The others are interesting if code has run.
        const char *text = error_of(&states[i]);
        if (work.has_run) host->log(text, strlen(text));
        host->explain(text, strcspn(text, "\n"));
        return -1;
    }
    return 0;
}

static int load(uint32_t number, bolide_text source, bolide_text mount) {
    (void)mount;
    return run_everywhere(source, (int)number + 1);
}

static bool make_state(struct state *state) {
    lua_State *L = state->L = state->running = luaL_newstate();
    if (!L || pthread_mutex_init(&state->lock, NULL)) return explain("there is not enough memory"), false;
    luaL_openlibs(L);
    lua_getglobal(L, "debug");
    lua_getfield(L, -1, "traceback");
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, "bolide.traceback");
    lua_pushcclosure(L, on_error, 1);
    state->on_error = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_newtable(L);
    state->applications = luaL_ref(L, LUA_REGISTRYINDEX);
    luaL_newmetatable(L, INPUT);
    lua_newtable(L);
    lua_pushcfunction(L, read_input);
    lua_setfield(L, -2, "read");
    lua_setfield(L, -2, "__index");
    if (luaL_loadbuffer(L, PRELUDE, sizeof PRELUDE - 1, "=bolide")) return explain(error_of(state)), false;
    lua_pushcfunction(L, log_line);
    lua_pushlightuserdata(L, state);
    lua_pushcclosure(L, switch_coroutine, 1);
    if (lua_pcall(L, 2, 1, 0)) return explain(error_of(state)), false;
    state->errors = luaL_ref(L, LUA_REGISTRYINDEX);
    return true;
}

static int start(const bolide_instance *instance) {
    // What the application writes by io.write goes to the log with each line, and is not written twice after a fork.
    setvbuf(stdout, NULL, _IOLBF, 0);
    state_count = instance->threads ? instance->threads : 1;
    states = calloc(state_count, sizeof *states);
    if (!states) return explain("there is not enough memory"), -1;
    for (uint32_t i = 0; i < state_count; i++)
        if (!make_state(&states[i])) return -1;
    for (size_t i = 0; i < instance->option_count; i++) {
        const bolide_pair *option = &instance->options[i];
        if (option->name.size == 4 && !memcmp(option->name.data, "load", 4)) {
            if (run_everywhere(option->value, 0)) return -1;
        } else if (option->name.size == 7 && !memcmp(option->name.data, "gc-freq", 7)) {
            char digits[24] = "";
            memcpy(digits, option->value.data, option->value.size < 23 ? option->value.size : 23);
            gc_freq = strtoul(digits, NULL, 10);
        } else {
            return explain("its options are lua, lua-load and lua-gc-freq"), -1;
        }
    }
    return 0;
}

// Lua can't leave objects out of its later collections, as CPython's gc.freeze does. What loading has left behind is collected
// here, so that no worker has a copy of it. The mode of the collector stays that of the application.
static void freeze(void) {
    for (uint32_t i = 0; i < state_count; i++) collect_garbage(&states[i]);
}

static void *enter(uint32_t number) {
    struct thread *thread = calloc(1, sizeof *thread);
    if (!thread) return explain("there is not enough memory"), NULL;
    thread->number = number;
    return thread;
}

static const bolide_adapter ADAPTER = {
    .version = BOLIDE_ABI_VERSION, .size = sizeof(bolide_adapter), .name = LANGUAGE,
    .load = load, .call = call, .resume = resume, .abandon = abandon, .start = start, .freeze = freeze,
    .enter = enter, .leave = free, .show_stack = show_stack,
};

const bolide_adapter *bolide_adapter_v1(const bolide_host *table) {
    host = table;
    return &ADAPTER;
}
