/* The limit program: one epoll loop that answers every request with the same bytes.
 *
 * Its cost is the kernel's own cost of a request: one epoll_wait for many connections, one recv and one send for each. No server
 * can be cheaper, so it is the baseline of the benchmark. It finds the end of a request's head (also when heads are pipelined, or
 * arrive in parts) and parses nothing else: a body is read and dropped, provided that it contains no empty line.
 *
 * `limit PORT websocket` is the baseline of WebSocket echoes: it answers an upgrade with the one Sec-WebSocket-Accept that
 * matches the key of the suite's clients (the sample of RFC 6455, section 1.3), and then echoes short messages. A connection
 * whose read does not end with the end of a frame is closed.
 *
 * Runs as one process, on 127.0.0.1 only.
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
#include <unistd.h>

enum {
    BACKLOG = 4096,          /* listen backlog */
    EVENTS_PER_WAIT = 256,
    READ_BYTES = 16384,
    MAX_DESCRIPTORS = 65536,
    ANSWERS_PER_SEND = 64,   /* pipelined answers in one send */
    MAX_OWED_ANSWERS = 4096 /* a client that sends more without reading is disconnected */
};

static const char ANSWER[] =
    "HTTP/1.1 200 OK\r\n"
    "Content-Type: text/plain\r\n"
    "Content-Length: 13\r\n"
    "Server: limit\r\n"
    "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
    "\r\n"
    "Hello, World!";
enum { ANSWER_BYTES = sizeof(ANSWER) - 1 };

static const char UPGRADED[] =
    "HTTP/1.1 101 Switching Protocols\r\n"
    "Upgrade: websocket\r\n"
    "Connection: Upgrade\r\n"
    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
    "\r\n";
static const char UPGRADE_WISH[] = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

static const char HEAD_END[] = "\r\n\r\n";
enum { HEAD_END_BYTES = 4 };

/* RFC 6455, section 5.2: two bytes, then the mask; lengths from 126 on have more bytes, which this program does not support. */
enum { FRAME_HEAD_BYTES = 2, MASK_BYTES = 4, LONGEST_SHORT_PAYLOAD = 125, LENGTH_BITS = 0x7f, MASK_BIT = 0x80 };
enum { FINAL_TEXT = 0x81, FINAL_BINARY = 0x82 };

struct connection {
    uint32_t matched;    /* bytes of HEAD_END at the end of the last read */
    uint32_t owed;       /* answers not yet sent in full */
    uint32_t sent_bytes; /* bytes of the first owed answer that are already sent */
    uint32_t waits_for_room;
    uint32_t is_websocket;
};

static struct connection connections[MAX_DESCRIPTORS];
static char answers[ANSWERS_PER_SEND * ANSWER_BYTES];
static int epoll;
static int knows_websocket;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Counts the heads that end in these bytes, and remembers a partial end at the end of the bytes. */
static uint32_t count_heads(struct connection *connection, const char *bytes, size_t length) {
    uint32_t heads = 0;
    size_t position = 0;
    while (connection->matched != 0 && position < length) {
        char byte = bytes[position++];
        if (byte == HEAD_END[connection->matched]) {
            if (++connection->matched == HEAD_END_BYTES) {
                heads++;
                connection->matched = 0;
            }
        } else {
            connection->matched = byte == HEAD_END[0];
        }
    }
    const char *found;
    while ((found = memmem(bytes + position, length - position, HEAD_END, HEAD_END_BYTES)) != NULL) {
        heads++;
        position = (size_t)(found - bytes) + HEAD_END_BYTES;
    }
    if (connection->matched == 0) {
        for (size_t tail = HEAD_END_BYTES - 1; tail > 0; tail--) {
            if (length - position >= tail && memcmp(bytes + length - tail, HEAD_END, tail) == 0) {
                connection->matched = (uint32_t)tail;
                break;
            }
        }
    }
    return heads;
}

static void watch(int descriptor, struct connection *connection, int for_room) {
    if (connection->waits_for_room == (uint32_t)for_room) {
        return;
    }
    connection->waits_for_room = (uint32_t)for_room;
    struct epoll_event event = {.events = for_room ? EPOLLOUT : EPOLLIN, .data.fd = descriptor};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &event) != 0) {
        fail("epoll_ctl");
    }
}

/* Sends the owed answers as far as the socket buffer allows; returns false if the connection is lost. */
static int send_owed(int descriptor, struct connection *connection) {
    while (connection->owed > 0) {
        uint32_t count = connection->owed < ANSWERS_PER_SEND ? connection->owed : ANSWERS_PER_SEND;
        size_t length = (size_t)count * ANSWER_BYTES - connection->sent_bytes;
        ssize_t sent = send(descriptor, answers + connection->sent_bytes, length, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN) {
                return 0;
            }
            watch(descriptor, connection, 1);
            return 1;
        }
        size_t done = connection->sent_bytes + (size_t)sent;
        connection->owed -= (uint32_t)(done / ANSWER_BYTES);
        connection->sent_bytes = (uint32_t)(done % ANSWER_BYTES);
    }
    watch(descriptor, connection, 0);
    return 1;
}

/* Echoes whole frames without their masks, in one send; returns false if that is not possible. */
static int echo(int descriptor, const unsigned char *bytes, size_t length) {
    static unsigned char frames[READ_BYTES];
    size_t written = 0;
    while (length > 0) {
        if (length < FRAME_HEAD_BYTES + MASK_BYTES || (bytes[0] != FINAL_TEXT && bytes[0] != FINAL_BINARY)) {
            return 0;
        }
        size_t payload = bytes[1] & LENGTH_BITS;
        size_t whole = FRAME_HEAD_BYTES + MASK_BYTES + payload;
        if (!(bytes[1] & MASK_BIT) || payload > LONGEST_SHORT_PAYLOAD || length < whole) {
            return 0;
        }
        const unsigned char *mask = bytes + FRAME_HEAD_BYTES;
        frames[written++] = bytes[0];
        frames[written++] = (unsigned char)payload;
        for (size_t index = 0; index < payload; index++) {
            frames[written++] = mask[MASK_BYTES + index] ^ mask[index % MASK_BYTES];
        }
        bytes += whole;
        length -= whole;
    }
    return send(descriptor, frames, written, MSG_NOSIGNAL) == (ssize_t)written;
}

static int serve(int descriptor, uint32_t events) {
    static char bytes[READ_BYTES];
    struct connection *connection = &connections[descriptor];
    if (events & EPOLLOUT) {
        return send_owed(descriptor, connection);
    }
    ssize_t length = recv(descriptor, bytes, sizeof(bytes), 0);
    if (length <= 0) {
        return length < 0 && (errno == EAGAIN || errno == EINTR);
    }
    if (connection->is_websocket) {
        return echo(descriptor, (const unsigned char *)bytes, (size_t)length);
    }
    if (knows_websocket && memmem(bytes, (size_t)length, UPGRADE_WISH, sizeof(UPGRADE_WISH) - 1) != NULL) {
        connection->is_websocket = 1;
        return send(descriptor, UPGRADED, sizeof(UPGRADED) - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof(UPGRADED) - 1);
    }
    connection->owed += count_heads(connection, bytes, (size_t)length);
    return connection->owed <= MAX_OWED_ANSWERS && send_owed(descriptor, connection);
}

static void accept_all(int listener) {
    for (;;) {
        int descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (descriptor < 0) {
            return;
        }
        if (descriptor >= MAX_DESCRIPTORS) {
            close(descriptor);
            continue;
        }
        int on = 1;
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        connections[descriptor] = (struct connection){0};
        struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) {
            close(descriptor);
        }
    }
}

static int listen_on(uint16_t port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
        fail("socket");
    }
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, BACKLOG) != 0) {
        fail("bind");
    }
    return listener;
}

int main(int argument_count, char **arguments) {
    knows_websocket = argument_count == 3 && strcmp(arguments[2], "websocket") == 0;
    int port = argument_count == 2 || knows_websocket ? atoi(arguments[1]) : 0;
    if (port < 1 || port > UINT16_MAX) {
        fprintf(stderr, "usage: limit PORT [websocket]\n");
        return 2;
    }
    for (size_t index = 0; index < ANSWERS_PER_SEND; index++) {
        memcpy(answers + index * ANSWER_BYTES, ANSWER, ANSWER_BYTES);
    }
    int listener = listen_on((uint16_t)port);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0) {
        fail("epoll");
    }
    struct epoll_event events[EVENTS_PER_WAIT];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_PER_WAIT, -1);
        if (count < 0 && errno != EINTR) {
            fail("epoll_wait");
        }
        for (int index = 0; index < count; index++) {
            int descriptor = events[index].data.fd;
            if (descriptor == listener) {
                accept_all(listener);
            } else if (!serve(descriptor, events[index].events)) {
                close(descriptor);
            }
        }
    }
}
