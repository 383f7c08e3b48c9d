/* The client of the fresh connections: one for each request, which ends with its answer, as nginx opens them without `keepalive`.
 *
 * `fresh_load http|uwsgi PLACE PATH CONNECTIONS`. PLACE is a port of 127.0.0.1 or the path of a UNIX socket; CONNECTIONS are open
 * at the same time. It makes one connection first, prints one line of JSON, and then reads commands from standard input: a number
 * is the seconds to run for, and is answered with another line of JSON; the end of the input ends the program. The first error
 * ends the program, with a "problem" in its line.
 *
 * It is one process with one loop. It connects and sends without a wait, as the kernel accepts both for a listening socket; with
 * one connection it blocks for the answer, with more it polls for them. The server must close the connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_CONNECTIONS = 1024,
    MAX_SECONDS = 3600,
    ANSWER_BYTES = 4096,     /* the answer's head and its body */
    REQUEST_BYTES = 4096,
    TIMEOUT_SECONDS = 10,    /* for each step of a connection */
    SLOTS = 200000,          /* of the histogram of latencies; the last one has all slower ones */
    LATENCY_STEP_US = 1
};

struct visit {
    int descriptor;
    uint64_t began_us;
    size_t length;
    char answer[ANSWER_BYTES];
};

static struct visit visits[MAX_CONNECTIONS];
static union { struct sockaddr any; struct sockaddr_in tcp; struct sockaddr_un local; } place;
static socklen_t place_bytes;
static char request[REQUEST_BYTES];
static size_t request_bytes;
static uint32_t latencies[SLOTS];
static uint64_t answered, slowest_us;

/* Prints the error, as the line of JSON that the suite waits for, and exits. */
__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...) {
    va_list words;
    char text[512];
    va_start(words, format);
    vsnprintf(text, sizeof(text), format, words);
    va_end(words);
    for (char *byte = text; *byte; byte++) {
        if (*byte == '"' || *byte == '\\' || !isprint((unsigned char)*byte)) {
            *byte = '?';
        }
    }
    printf("{\"problem\": \"%s\"}\n", text);
    fflush(stdout);
    _exit(1);
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Opens a connection and sends its request. */
static void begin(struct visit *visit) {
    struct timeval patience = {.tv_sec = TIMEOUT_SECONDS};
    visit->began_us = now_us();
    visit->length = 0;
    visit->descriptor = socket(place.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (visit->descriptor < 0 ||
        setsockopt(visit->descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0) {
        give_up("no socket: %s", strerror(errno));
    }
    if (connect(visit->descriptor, &place.any, place_bytes) != 0) {
        give_up("no connection: %s", strerror(errno));
    }
    if (send(visit->descriptor, request, request_bytes, 0) != (ssize_t)request_bytes) {
        give_up("the request could not be sent: %s", strerror(errno));
    }
}

/* Reads what has come. Returns whether the server has closed the connection, which ends the answer. */
static int has_ended(struct visit *visit, int flags) {
    for (;;) {
        ssize_t count = recv(visit->descriptor, visit->answer + visit->length, ANSWER_BYTES - 1 - visit->length, flags);
        if (count == 0) {
            return 1;
        }
        if (count < 0) {
            if ((flags & MSG_DONTWAIT) && errno == EAGAIN) {
                return 0;
            }
            give_up("the answer could not be read: %s", strerror(errno));
        }
        visit->length += (size_t)count;
        if (visit->length == ANSWER_BYTES - 1) {
            give_up("the answer is longer than %d bytes", ANSWER_BYTES);
        }
    }
}

static void check(struct visit *visit) {
    visit->answer[visit->length] = '\0';
    if (strncmp(visit->answer, "HTTP/1.1 200", 12) != 0 && strncmp(visit->answer, "HTTP/1.0 200", 12) != 0) {
        give_up("the answer is not right: %.*s", (int)strcspn(visit->answer, "\r"), visit->answer);
    }
    close(visit->descriptor);
    uint64_t took = now_us() - visit->began_us, slot = took / LATENCY_STEP_US;
    latencies[slot < SLOTS ? slot : SLOTS - 1]++;
    slowest_us = took > slowest_us ? took : slowest_us;
    answered++;
}

static void visit_one_by_one(uint64_t ends_us) {
    do {
        begin(&visits[0]);
        has_ended(&visits[0], 0);
        check(&visits[0]);
    } while (now_us() < ends_us);
}

static void watch(int poll, struct visit *visit) {
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = visit};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, visit->descriptor, &wanted) != 0) {
        give_up("a connection can't be watched: %s", strerror(errno));
    }
}

static void visit_together(int connections, uint64_t ends_us) {
    struct epoll_event events[MAX_CONNECTIONS];
    int poll = epoll_create1(EPOLL_CLOEXEC), open = connections;
    if (poll < 0) {
        give_up("no poll: %s", strerror(errno));
    }
    for (int index = 0; index < connections; index++) {
        begin(&visits[index]);
        watch(poll, &visits[index]);
    }
    while (open > 0) {
        int count = epoll_wait(poll, events, MAX_CONNECTIONS, TIMEOUT_SECONDS * 1000);
        if (count <= 0) {
            give_up("no answer within %d s", TIMEOUT_SECONDS);
        }
        for (int index = 0; index < count; index++) {
            struct visit *visit = events[index].data.ptr;
            if (!has_ended(visit, MSG_DONTWAIT)) {
                continue;
            }
            check(visit);
            if (now_us() < ends_us) {
                begin(visit);
                watch(poll, visit);
            } else {
                open--;
            }
        }
    }
    close(poll);
}

/* The latency of this percentile of the requests in microseconds. */
static uint64_t percentile(double part) {
    uint64_t seen = 0;
    for (uint64_t slot = 0; slot + 1 < SLOTS; slot++) {
        seen += latencies[slot];
        if ((double)seen >= part * (double)answered) {
            return (slot + 1) * LATENCY_STEP_US;
        }
    }
    return slowest_us;
}

static void run(int seconds, int connections) {
    uint64_t began_us = now_us(), ends_us = began_us + (uint64_t)seconds * 1000000;
    memset(latencies, 0, sizeof(latencies));
    answered = slowest_us = 0;
    if (connections == 1) {
        visit_one_by_one(ends_us);
    } else {
        visit_together(connections, ends_us);
    }
    printf("{\"requests\": %lu, \"microseconds\": %lu, \"latency_us\": {\"p50\": %lu, \"p90\": %lu, \"p99\": %lu, \"p99.9\": %lu,"
           " \"max\": %lu}, \"problem\": null}\n", answered, now_us() - began_us, percentile(0.50), percentile(0.90),
           percentile(0.99), percentile(0.999), slowest_us);
    fflush(stdout);
}

/* Appends a variable of the uwsgi protocol, whose sizes are little-endian. */
static void add_variable(const char *name, const char *value) {
    const char *parts[] = {name, value};
    for (int part = 0; part < 2; part++) {
        size_t length = strlen(parts[part]);
        if (request_bytes + 2 + length > sizeof(request)) {
            give_up("the path is too long");
        }
        request[request_bytes++] = (char)(length & 0xff);
        request[request_bytes++] = (char)(length >> 8);
        memcpy(request + request_bytes, parts[part], length);
        request_bytes += length;
    }
}

/* The variables that nginx's uwsgi_params sends. */
static void write_uwsgi(const char *path) {
    request_bytes = 4;
    add_variable("QUERY_STRING", "");
    add_variable("REQUEST_METHOD", "GET");
    add_variable("CONTENT_TYPE", "");
    add_variable("CONTENT_LENGTH", "");
    add_variable("REQUEST_URI", path);
    add_variable("PATH_INFO", path);
    add_variable("DOCUMENT_ROOT", "/usr/share/nginx/html");
    add_variable("SERVER_PROTOCOL", "HTTP/1.1");
    add_variable("REQUEST_SCHEME", "http");
    add_variable("REMOTE_ADDR", "127.0.0.1");
    add_variable("REMOTE_PORT", "50000");
    add_variable("SERVER_PORT", "80");
    add_variable("SERVER_NAME", "localhost");
    add_variable("HTTP_HOST", "localhost");
    size_t size = request_bytes - 4;
    request[0] = 0;
    request[1] = (char)(size & 0xff);
    request[2] = (char)(size >> 8);
    request[3] = 0;
}

static void write_http(const char *path) {
    int length = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    if (length < 0 || (size_t)length >= sizeof(request)) {
        give_up("the path is too long");
    }
    request_bytes = (size_t)length;
}

static void find_place(const char *text) {
    if (text[0] == '/') {
        if (strlen(text) >= sizeof(place.local.sun_path)) {
            give_up("the path of the socket is too long");
        }
        place.local.sun_family = AF_UNIX;
        strcpy(place.local.sun_path, text);
        place_bytes = sizeof(place.local);
    } else {
        place.tcp.sin_family = AF_INET;
        place.tcp.sin_port = htons((uint16_t)atoi(text));
        place.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        place_bytes = sizeof(place.tcp);
    }
}

int main(int argument_count, char **arguments) {
    if (argument_count != 5) {
        fprintf(stderr, "usage: fresh_load http|uwsgi PLACE PATH CONNECTIONS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int connections = atoi(arguments[4]);
    if (connections < 1 || connections > MAX_CONNECTIONS) {
        give_up("there can be 1 to %d connections", MAX_CONNECTIONS);
    }
    find_place(arguments[2]);
    if (strcmp(arguments[1], "uwsgi") == 0) {
        write_uwsgi(arguments[3]);
    } else {
        write_http(arguments[3]);
    }
    begin(&visits[0]);
    has_ended(&visits[0], 0);
    check(&visits[0]);
    printf("{\"problem\": null}\n");
    fflush(stdout);
    char line[32];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        int seconds = atoi(line);
        if (seconds < 1 || seconds > MAX_SECONDS) {
            give_up("the number of seconds is to be from 1 to %d", MAX_SECONDS);
        }
        run(seconds, connections);
    }
    return 0;
}
