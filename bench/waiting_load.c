/* The client of the waiting scenarios: sends requests at the times of a schedule, independent of the server's answers.
 *
 * `waiting_load PORT SCHEDULE CONNECTIONS`: the schedule is a file with a line for each request, `ARRIVAL SERVICE` in
 * microseconds from the start, sorted; a request asks for /view/SERVICE, a view that takes this long. CONNECTIONS 0 opens a new
 * connection for each request and closes it after the answer. Any other number is the size of a pool of keep-alive connections:
 * until the pool is full, a request opens another connection; then it uses a random idle one, and opens one more if none is idle.
 *
 * The time of a request counts from its place in the schedule, not from when it was sent: delays by a slow server, or by this
 * program itself, are included (to leave them out is "coordinated omission"). It ends with the answer's last byte. The times are
 * written as one line of JSON, in the order of the schedule; -1 is a request without a right answer. If the server closes a kept
 * connection without sending any byte of an answer, the request is sent once more on another, as browsers do.
 *
 * It is one process with one epoll loop, and parses no more of HTTP than the status, Content-Length and Connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_REQUESTS = 1000000,
    MAX_CONNECTIONS = 16384,   /* concurrent connections: the pool and beyond it */
    ANSWER_BYTES = 4096,        /* a longer answer is refused */
    REQUEST_BYTES = 256,
    EVENTS_PER_WAIT = 256,
    STALL_MICROSECONDS = 60000000, /* without a single answer while some are due */
    START_MICROSECONDS = 20000  /* from the start of the program to the schedule's zero */
};

enum state { CLOSED, CONNECTING, ASKED, IDLE };

struct connection {
    int descriptor;
    enum state state;
    size_t request;        /* index in the schedule, while a request is in flight */
    int used_before;       /* it has carried an answer */
    size_t idle_place;     /* index in `idle`, while it is idle */
    size_t length;         /* filled bytes of `answer` */
    char answer[ANSWER_BYTES + 1];
};

struct request {
    int64_t arrival_us, service_us, took_us;
};

static struct request *requests;
static size_t request_count, due;
static struct connection *connections;
static size_t *free_places, free_count;
static size_t *idle, idle_count;
static size_t pool, open_count, opened, resent, failed;
static int64_t zero_us, latest_us, late_sum_us;
static int epoll;
static const char *port;
static uint32_t random_state = 0x9e3779b9;
static char first_problem[256];

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* xorshift: the same choices in each run. */
static uint32_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static void read_schedule(const char *path) {
    FILE *file = fopen(path, "r");
    requests = calloc(MAX_REQUESTS, sizeof(struct request));
    if (file == NULL || requests == NULL) {
        give_up("the schedule can't be read: %s", strerror(errno));
    }
    long long arrival, service;
    while (request_count < MAX_REQUESTS && fscanf(file, "%lld %lld", &arrival, &service) == 2) {
        requests[request_count++] = (struct request){.arrival_us = arrival, .service_us = service, .took_us = -1};
    }
    fclose(file);
    if (request_count == 0) {
        give_up("the schedule has no request");
    }
}

static void forget_idle(struct connection *connection) {
    size_t last = idle[--idle_count];
    idle[connection->idle_place] = last;
    connections[last].idle_place = connection->idle_place;
}

static void close_connection(struct connection *connection) {
    if (connection->state == IDLE) {
        forget_idle(connection);
    }
    close(connection->descriptor);
    connection->state = CLOSED;
    free_places[free_count++] = (size_t)(connection - connections);
    open_count--;
}

/* Keeps the text of the first error for the report; further ones are only counted. */
static void fail(size_t request, const char *problem) {
    if (failed++ == 0) {
        snprintf(first_problem, sizeof(first_problem), "%s", problem);
    }
    requests[request].took_us = -1;
    due--;
}

static void ask(struct connection *connection) {
    char head[REQUEST_BYTES];
    int length = snprintf(head, sizeof(head), "GET /view/%lld HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n%s\r\n",
                          (long long)requests[connection->request].service_us, port, pool == 0 ? "Connection: close\r\n" : "");
    connection->state = ASKED;
    connection->length = 0;
    /* A failed send is reported by the next event: the connection is lost then. */
    (void)!send(connection->descriptor, head, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void open_for(size_t request) {
    if (free_count == 0) {
        fail(request, "more connections at once than this client holds");
        return;
    }
    struct connection *connection = &connections[free_places[--free_count]];
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    connection->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection->descriptor < 0) {
        give_up("no socket: %s", strerror(errno));
    }
    setsockopt(connection->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connection->request = request;
    connection->used_before = 0;
    connection->state = CONNECTING;
    open_count++;
    opened++;
    int connected = connect(connection->descriptor, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (!connected && errno != EINPROGRESS) {
        fail(request, strerror(errno));
        close_connection(connection);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->descriptor, &event) != 0) {
        give_up("epoll: %s", strerror(errno));
    }
    if (connected) {
        ask(connection);
    }
}

static void begin(size_t request) {
    if (pool == 0 || open_count < pool || idle_count == 0) {
        open_for(request);
        return;
    }
    struct connection *connection = &connections[idle[next_random() % idle_count]];
    forget_idle(connection);
    connection->request = request;
    ask(connection);
}

/* The value of a header field in the head of an answer, or NULL. */
static const char *field(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            return line + length + 1 + strspn(line + length + 1, " \t");
        }
    }
    return NULL;
}

/* Consumes the answer once it is complete; returns 0 before that. */
static int take_answer(struct connection *connection) {
    connection->answer[connection->length] = '\0';
    char *end = strstr(connection->answer, "\r\n\r\n");
    if (end == NULL) {
        return 0;
    }
    size_t head_bytes = (size_t)(end + 4 - connection->answer);
    char after = connection->answer[head_bytes];
    connection->answer[head_bytes] = '\0';
    const char *length = field(connection->answer, "content-length"), *persistence = field(connection->answer, "connection");
    int status = atoi(connection->answer + strcspn(connection->answer, " "));
    size_t whole = head_bytes + (length != NULL ? strtoul(length, NULL, 10) : 0);
    int closes = pool == 0 || length == NULL || (persistence != NULL && strncasecmp(persistence, "close", 5) == 0) ||
                 strncmp(connection->answer, "HTTP/1.1", 8) != 0;
    connection->answer[head_bytes] = after;
    if (connection->length < whole) {
        return 0;
    }
    struct request *request = &requests[connection->request];
    if (status == 200 && length != NULL) {
        request->took_us = now_us() - zero_us - request->arrival_us;
        due--;
    } else {
        char problem[64];
        snprintf(problem, sizeof(problem), "an answer has status %d%s", status, length == NULL ? " and no Content-Length" : "");
        fail(connection->request, problem);
    }
    if (closes) {
        close_connection(connection);
        return 1;
    }
    connection->used_before = 1;
    connection->state = IDLE;
    connection->idle_place = idle_count;
    idle[idle_count++] = (size_t)(connection - connections);
    return 1;
}

static void lose(struct connection *connection, const char *reason) {
    enum state state = connection->state;
    size_t request = connection->request;
    int again = connection->used_before && connection->length == 0;
    close_connection(connection);
    if (state == IDLE) {
        return;
    }
    if (again) {
        resent++;
        open_for(request);
    } else {
        fail(request, reason);
    }
}

static void attend(struct connection *connection, uint32_t events) {
    if (connection->state == CLOSED) {
        return;
    }
    if (connection->state == CONNECTING) {
        int error = 0;
        socklen_t length = sizeof(error);
        getsockopt(connection->descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) {
            lose(connection, strerror(error));
            return;
        }
        if (events & EPOLLOUT) {
            ask(connection);
        }
    }
    for (;;) {
        char surplus[1];
        int is_asked = connection->state == ASKED && connection->length < ANSWER_BYTES;
        char *into = is_asked ? connection->answer + connection->length : surplus;
        ssize_t received = recv(connection->descriptor, into, is_asked ? ANSWER_BYTES - connection->length : 1, MSG_DONTWAIT);
        if (received < 0 && errno == EINTR) {
            continue;
        }
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (received <= 0) {
            lose(connection, received == 0 ? "a connection ended before its answer" : strerror(errno));
            return;
        }
        if (!is_asked) {
            lose(connection, "an answer is too long");
            return;
        }
        connection->length += (size_t)received;
        if (take_answer(connection) && connection->state == CLOSED) {
            return;
        }
    }
}

/* Sends all requests that are due by now, and sets the timer to the next one. */
static size_t send_due(size_t next, int timer) {
    for (; next < request_count; next++) {
        int64_t late = now_us() - zero_us - requests[next].arrival_us;
        if (late < 0) {
            break;
        }
        late_sum_us += late;
        latest_us = late > latest_us ? late : latest_us;
        begin(next);
    }
    if (next < request_count) {
        int64_t at = zero_us + requests[next].arrival_us;
        struct itimerspec when = {.it_value = {.tv_sec = at / 1000000, .tv_nsec = at % 1000000 * 1000}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
    }
    return next;
}

static void run(void) {
    struct epoll_event events[EVENTS_PER_WAIT];
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event rings = {.events = EPOLLIN, .data.ptr = NULL};
    if (timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &rings) != 0) {
        give_up("no timer: %s", strerror(errno));
    }
    due = request_count;
    zero_us = now_us() + START_MICROSECONDS;
    size_t next = send_due(0, timer), due_before = due;
    int64_t last_progress = zero_us;
    while (due > 0) {
        int count = epoll_wait(epoll, events, EVENTS_PER_WAIT, STALL_MICROSECONDS / 1000);
        if (count < 0 && errno != EINTR) {
            give_up("epoll_wait: %s", strerror(errno));
        }
        /* Arrivals first: handling answers below must not delay them. */
        next = send_due(next, timer);
        for (int index = 0; index < count; index++) {
            struct connection *connection = events[index].data.ptr;
            uint64_t rung;
            if (connection == NULL) {
                (void)!read(timer, &rung, sizeof(rung));
            } else {
                attend(connection, events[index].events);
            }
        }
        int64_t now = now_us();
        if (due != due_before) {
            due_before = due;
            last_progress = now;
        }
        if (now - last_progress > STALL_MICROSECONDS) {
            snprintf(first_problem, sizeof(first_problem), "no answer within %d s", STALL_MICROSECONDS / 1000000);
            failed += due;
            break;
        }
    }
}

static void report(void) {
    for (char *byte = first_problem; *byte; byte++) {
        *byte = *byte == '"' || *byte == '\\' || !isprint((unsigned char)*byte) ? '?' : *byte;
    }
    printf("{\"opened\": %zu, \"resent\": %zu, \"failed\": %zu, \"problem\": \"%s\", \"late_mean_us\": %.1f, \"late_most_us\": %lld,"
           " \"took_us\": [", opened, resent, failed, first_problem, (double)late_sum_us / (double)request_count,
           (long long)latest_us);
    for (size_t index = 0; index < request_count; index++) {
        printf("%s%lld", index > 0 ? ", " : "", (long long)requests[index].took_us);
    }
    printf("]}\n");
}

int main(int argument_count, char **arguments) {
    if (argument_count != 4) {
        fprintf(stderr, "usage: waiting_load PORT SCHEDULE CONNECTIONS\n");
        return 2;
    }
    port = arguments[1];
    read_schedule(arguments[2]);
    pool = (size_t)atoi(arguments[3]);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    connections = calloc(MAX_CONNECTIONS, sizeof(struct connection));
    free_places = calloc(MAX_CONNECTIONS, sizeof(size_t));
    idle = calloc(MAX_CONNECTIONS, sizeof(size_t));
    if (epoll < 0 || connections == NULL || free_places == NULL || idle == NULL || pool > MAX_CONNECTIONS) {
        give_up("not enough memory or descriptors");
    }
    for (size_t place = MAX_CONNECTIONS; place > 0; place--) {
        free_places[free_count++] = place - 1;
    }
    run();
    report();
    return 0;
}
