/* The limit program of the waiting scenarios: one queue in front of N servers, and nothing else.
 *
 * `waiting_limit PORT SERVERS` answers a request for /view/SERVICE after one of SERVERS has been busy with it for SERVICE
 * microseconds; requests that find no free server wait in one first-come-first-served queue. That is the least waiting that is
 * possible without knowing the future, so the difference to the computed queue is the cost of the machine, the kernel and the
 * client.
 *
 * It is one epoll loop with one timer, on 127.0.0.1 only, and understands the path and `Connection: close`. It does not support
 * pipelining: a client that sends the next request before it has the answer is disconnected.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,             /* listen backlog */
    EVENTS_PER_WAIT = 256,
    REQUEST_BYTES = 1024,       /* a longer head ends its connection */
    MAX_DESCRIPTORS = 16384,
    MAX_SERVERS = 1024,
    MAX_SERVICE_US = 60000000
};

static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n%s\r\nHello, World!";

struct peer {
    int open, waits, closes;
    int64_t service_us;
    uint32_t generation;        /* a late answer must not go to a later client with the same number */
    size_t length;
    char head[REQUEST_BYTES + 1];
};

struct server {
    int busy, descriptor;
    uint32_t generation;
    int64_t ends_us;
};

struct place {
    int descriptor;
    uint32_t generation;
};

static struct peer *peers;
static struct server servers[MAX_SERVERS];
static struct place queue[MAX_DESCRIPTORS];
static size_t queue_first, queue_count, server_count;
static int epoll;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void forget(int descriptor) {
    peers[descriptor].open = peers[descriptor].waits = 0;
    peers[descriptor].generation++;
    close(descriptor);
}

static int is_there(struct place place) {
    return peers[place.descriptor].open && peers[place.descriptor].generation == place.generation;
}

/* Assigns the first queued requests to free servers, while there are both. */
static void assign(int64_t now) {
    for (size_t index = 0; index < server_count; index++) {
        while (!servers[index].busy && queue_count > 0) {
            struct place first = queue[queue_first];
            queue_first = (queue_first + 1) % MAX_DESCRIPTORS;
            queue_count--;
            if (is_there(first)) {
                servers[index] = (struct server){.busy = 1, .descriptor = first.descriptor, .generation = first.generation,
                                                 .ends_us = now + peers[first.descriptor].service_us};
            }
        }
    }
}

static void answer(int descriptor) {
    char text[256];
    struct peer *peer = &peers[descriptor];
    int length = snprintf(text, sizeof(text), ANSWER, peer->closes ? "Connection: close\r\n" : "");
    peer->waits = 0;
    peer->length = 0;
    if (send(descriptor, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT) != length || peer->closes) {
        forget(descriptor);
    }
}

/* Answers finished requests, begins queued ones, and sets the timer to the next end. */
static void turn(int timer) {
    int64_t now = now_us(), next = INT64_MAX;
    for (size_t index = 0; index < server_count; index++) {
        struct server *server = &servers[index];
        if (server->busy && server->ends_us <= now) {
            server->busy = 0;
            if (is_there((struct place){server->descriptor, server->generation})) {
                answer(server->descriptor);
            }
        }
    }
    assign(now);
    for (size_t index = 0; index < server_count; index++) {
        next = servers[index].busy && servers[index].ends_us < next ? servers[index].ends_us : next;
    }
    struct itimerspec when = {0};
    if (next != INT64_MAX) {
        when.it_value = (struct timespec){.tv_sec = next / 1000000, .tv_nsec = next % 1000000 * 1000};
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void read_request(int descriptor) {
    static const char PATH[] = "GET /view/";
    struct peer *peer = &peers[descriptor];
    ssize_t received = recv(descriptor, peer->head + peer->length, REQUEST_BYTES - peer->length, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (received <= 0 || peer->waits || peer->length + (size_t)received == REQUEST_BYTES) {
        forget(descriptor);
        return;
    }
    peer->length += (size_t)received;
    peer->head[peer->length] = '\0';
    if (strstr(peer->head, "\r\n\r\n") == NULL) {
        return;
    }
    peer->service_us = strncmp(peer->head, PATH, sizeof(PATH) - 1) == 0 ? atoll(peer->head + sizeof(PATH) - 1) : -1;
    if (peer->service_us < 0 || peer->service_us > MAX_SERVICE_US) {
        forget(descriptor);
        return;
    }
    peer->closes = strcasestr(peer->head, "\r\nConnection: close\r\n") != NULL;
    peer->waits = 1;
    if (queue_count == MAX_DESCRIPTORS) {
        forget(descriptor);
        return;
    }
    queue[(queue_first + queue_count++) % MAX_DESCRIPTORS] = (struct place){descriptor, peer->generation};
}

static void accept_all(int listener) {
    int descriptor, on = 1;
    while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (descriptor >= MAX_DESCRIPTORS) {
            close(descriptor);
            continue;
        }
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        peers[descriptor] = (struct peer){.open = 1, .generation = peers[descriptor].generation};
        struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
        epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
        /* The request has usually arrived already. */
        read_request(descriptor);
    }
}

static int listen_at(const char *port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, BACKLOG) != 0) {
        perror("waiting_limit");
        exit(1);
    }
    return listener;
}

int main(int argument_count, char **arguments) {
    server_count = argument_count == 3 ? (size_t)atoi(arguments[2]) : 0;
    if (server_count < 1 || server_count > MAX_SERVERS) {
        fprintf(stderr, "usage: waiting_limit PORT SERVERS\n");
        return 2;
    }
    peers = calloc(MAX_DESCRIPTORS, sizeof(struct peer));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_at(arguments[1]), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS_PER_WAIT];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = timer;
    if (peers == NULL || timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) != 0) {
        perror("waiting_limit");
        return 1;
    }
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_PER_WAIT, -1);
        for (int index = 0; index < count; index++) {
            int descriptor = events[index].data.fd;
            uint64_t rung;
            if (descriptor == listener) {
                accept_all(listener);
            } else if (descriptor == timer) {
                (void)!read(timer, &rung, sizeof(rung));
            } else if (peers[descriptor].open) {
                read_request(descriptor);
            }
        }
        turn(timer);
    }
}
