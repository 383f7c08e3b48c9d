/* The WebSocket load client: one message in flight on each of many sockets, each echo compared with the sent message.
 *
 * `websocket_load PORT PATH SOCKETS MESSAGE_BYTES`. It opens all sockets, prints one line of JSON, and then reads commands from
 * standard input: a number is the seconds to send for, and is answered with another line of JSON; the end of the input ends the
 * program. This lets the suite read the server's clocks while only messages are in flight, and no handshake. The first error ends
 * the program, with a "problem" in its line.
 *
 * It is one process with one epoll loop, on the client's CPU. Messages are text. It offers no extension and no subprotocol,
 * answers pings, and accepts nothing that RFC 6455 does not allow a server to send.
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
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_SOCKETS = 4096,
    MIN_MESSAGE_BYTES = 24,  /* the numbers of the socket and of the message, as text */
    MAX_MESSAGE_BYTES = 1024,
    BUFFER_BYTES = 4096,       /* an echo and a few control frames; a longer head of an answer is refused */
    EVENTS_PER_WAIT = 256,
    HANDSHAKE_SECONDS = 10,    /* for each socket */
    STALL_MILLISECONDS = 10000, /* without a single echo on any socket */
    MAX_SECONDS = 3600,
    SLOTS = 200000,            /* of the histogram of latencies; the last one has all slower ones */
    LATENCY_STEP_US = 10
};

/* RFC 6455, section 5.2. */
enum { FIN = 0x80, TEXT = 0x1, CLOSE = 0x8, PING = 0x9, PONG = 0xa, MASKED = 0x80, LENGTH_BITS = 0x7f };
enum { HEAD_BYTES = 2, LENGTH_BYTES = 2, MASK_BYTES = 4, LONGEST_CONTROL = 125, LENGTH_FOLLOWS = 126, LONG_LENGTH_FOLLOWS = 127 };

/* The sample handshake of RFC 6455, section 1.3: a fixed key, so that the limit program needs no SHA-1. */
static const char KEY[] = "dGhlIHNhbXBsZSBub25jZQ==";
static const char ACCEPT[] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

struct peer {
    int descriptor;
    uint32_t messages;     /* messages sent so far; the number is part of the next one */
    uint64_t sent_at;      /* microseconds */
    int waits_for_echo;
    size_t length;         /* filled bytes of `buffer` */
    unsigned char buffer[BUFFER_BYTES];
    char message[MAX_MESSAGE_BYTES + 1];
};

static struct peer *peers;
static size_t peer_count, message_bytes;
static uint32_t latencies[SLOTS];
static uint64_t echoes, slowest_us;
static uint32_t mask_state = 0x9e3779b9;

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
    exit(1);
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* xorshift: RFC 6455 requires masks that a script in a browser can't predict; that does not matter here. */
static uint32_t next_mask(void) {
    mask_state ^= mask_state << 13;
    mask_state ^= mask_state >> 17;
    mask_state ^= mask_state << 5;
    return mask_state;
}

static void send_frame(struct peer *peer, unsigned opcode, const char *payload, size_t length) {
    unsigned char frame[HEAD_BYTES + LENGTH_BYTES + MASK_BYTES + MAX_MESSAGE_BYTES];
    size_t at = 0;
    frame[at++] = (unsigned char)(FIN | opcode);
    if (length <= LONGEST_CONTROL) {
        frame[at++] = (unsigned char)(MASKED | length);
    } else {
        frame[at++] = MASKED | LENGTH_FOLLOWS;
        frame[at++] = (unsigned char)(length >> 8);
        frame[at++] = (unsigned char)(length & 0xff);
    }
    uint32_t mask = next_mask();
    unsigned char *masks = frame + at;
    memcpy(masks, &mask, MASK_BYTES);
    at += MASK_BYTES;
    for (size_t index = 0; index < length; index++) {
        frame[at++] = (unsigned char)payload[index] ^ masks[index % MASK_BYTES];
    }
    if (send(peer->descriptor, frame, at, MSG_NOSIGNAL) != (ssize_t)at) {
        give_up("a message could not be sent: %s", strerror(errno));
    }
}

/* Each message differs from all others, on its socket and on all sockets, so that no echo can be mistaken for another. */
static void send_message(struct peer *peer) {
    int written = snprintf(peer->message, sizeof(peer->message), "%08zx-%08x-", (size_t)(peer - peers), peer->messages++);
    for (size_t at = (size_t)written; at < message_bytes; at++) {
        peer->message[at] = (char)('a' + (at + peer->messages) % 26);
    }
    peer->message[message_bytes] = '\0';
    peer->sent_at = now_us();
    peer->waits_for_echo = 1;
    send_frame(peer, TEXT, peer->message, message_bytes);
}

static void take_echo(struct peer *peer, const unsigned char *payload, size_t length) {
    if (!peer->waits_for_echo || length != message_bytes || memcmp(payload, peer->message, length) != 0) {
        give_up("an echo of %zu bytes is not the message of %zu bytes that was sent", length, message_bytes);
    }
    uint64_t took = now_us() - peer->sent_at;
    uint64_t slot = took / LATENCY_STEP_US;
    latencies[slot < SLOTS ? slot : SLOTS - 1]++;
    slowest_us = took > slowest_us ? took : slowest_us;
    peer->waits_for_echo = 0;
    echoes++;
}

/* Consumes one whole frame from the start of these bytes: returns its length, or 0 if the frame is incomplete. */
static size_t take_frame(struct peer *peer, const unsigned char *bytes, size_t available) {
    if (available < HEAD_BYTES) {
        return 0;
    }
    size_t length = bytes[1] & LENGTH_BITS, head = HEAD_BYTES;
    int is_control = bytes[0] & CLOSE;
    if (bytes[1] & MASKED || length == LONG_LENGTH_FOLLOWS || (is_control && length > LONGEST_CONTROL)) {
        give_up("a frame that begins with %02x %02x is masked or too long", bytes[0], bytes[1]);
    }
    if (length == LENGTH_FOLLOWS) {
        head += LENGTH_BYTES;
        if (available < head) {
            return 0;
        }
        length = (size_t)bytes[2] << 8 | bytes[3];
    }
    if (length > MAX_MESSAGE_BYTES) {
        give_up("a frame has %zu bytes of payload", length);
    }
    if (available < head + length) {
        return 0;
    }
    switch (bytes[0]) {
    case FIN | TEXT:
        take_echo(peer, bytes + head, length);
        break;
    case FIN | PING:
        send_frame(peer, PONG, (const char *)bytes + head, length);
        break;
    case FIN | PONG:
        break;
    case FIN | CLOSE:
        give_up("the server closed a socket, code %u", length >= 2 ? (unsigned)bytes[head] << 8 | bytes[head + 1] : 0);
    default:
        give_up("a frame begins with %02x, which is no text message in one piece", bytes[0]);
    }
    return head + length;
}

/* Reads all available bytes and consumes all whole frames. */
static void read_frames(struct peer *peer) {
    ssize_t received = recv(peer->descriptor, peer->buffer + peer->length, BUFFER_BYTES - peer->length, MSG_DONTWAIT);
    if (received == 0) {
        give_up("the server ended a connection");
    }
    if (received < 0) {
        if (errno == EAGAIN || errno == EINTR) {
            return;
        }
        give_up("a connection was lost: %s", strerror(errno));
    }
    peer->length += (size_t)received;
    size_t taken = 0, frame;
    while ((frame = take_frame(peer, peer->buffer + taken, peer->length - taken)) != 0) {
        taken += frame;
    }
    peer->length -= taken;
    memmove(peer->buffer, peer->buffer + taken, peer->length);
}

/* The value of a header in a head that ends with a null byte; it ends with the line. NULL if there is no such header. */
static const char *header(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            return line + length + 1 + strspn(line + length + 1, " \t");
        }
    }
    return NULL;
}

/* The handshake of one socket, blocking; frames that arrived with the answer stay in the buffer. */
static void shake_hands(struct peer *peer, const char *port, const char *path) {
    char request[1024];
    int length = snprintf(request, sizeof(request),
                          "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", path, port, KEY);
    if (length < 0 || (size_t)length >= sizeof(request)) {
        give_up("the path is too long");
    }
    if (send(peer->descriptor, request, (size_t)length, MSG_NOSIGNAL) != length) {
        give_up("the handshake could not be sent: %s", strerror(errno));
    }
    char *head = (char *)peer->buffer, *end = NULL;
    while (end == NULL) {
        if (peer->length == BUFFER_BYTES - 1) {
            give_up("the answer to the handshake has no end");
        }
        ssize_t received = recv(peer->descriptor, head + peer->length, BUFFER_BYTES - 1 - peer->length, 0);
        if (received <= 0) {
            give_up("no answer to the handshake: %s", received == 0 ? "the connection ended" : strerror(errno));
        }
        peer->length += (size_t)received;
        head[peer->length] = '\0';
        end = memmem(head, peer->length, "\r\n\r\n", 4);
    }
    size_t head_bytes = (size_t)(end + 4 - head);
    char after = head[head_bytes];
    head[head_bytes] = '\0';
    const char *accept = header(head, "sec-websocket-accept");
    if (strncmp(head, "HTTP/1.1 101 ", 13) != 0 || accept == NULL || strncmp(accept, ACCEPT, sizeof(ACCEPT) - 1) != 0) {
        give_up("the answer to the handshake is not right: %.*s", (int)strcspn(head, "\r"), head);
    }
    if (header(head, "sec-websocket-extensions") != NULL || header(head, "sec-websocket-protocol") != NULL) {
        give_up("the server chose what it was not offered");
    }
    head[head_bytes] = after;
    peer->length -= head_bytes;
    memmove(head, head + head_bytes, peer->length);
}

static void open_peer(struct peer *peer, int epoll, const char *port, const char *path) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = HANDSHAKE_SECONDS};
    int on = 1;
    peer->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer->descriptor < 0 || setsockopt(peer->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        setsockopt(peer->descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0) {
        give_up("no socket: %s", strerror(errno));
    }
    if (connect(peer->descriptor, (struct sockaddr *)&address, sizeof(address)) != 0) {
        give_up("no connection: %s", strerror(errno));
    }
    shake_hands(peer, port, path);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, peer->descriptor, &event) != 0) {
        give_up("epoll: %s", strerror(errno));
    }
}

/* The latency of this percentile of the echoes in microseconds, rounded up to a multiple of LATENCY_STEP_US. */
static uint64_t percentile(double part) {
    uint64_t seen = 0;
    for (uint64_t slot = 0; slot + 1 < SLOTS; slot++) {
        seen += latencies[slot];
        if ((double)seen >= part * (double)echoes) {
            return (slot + 1) * LATENCY_STEP_US;
        }
    }
    return slowest_us;
}

/* Sends for this many seconds, then waits for the outstanding echoes: each sent message is counted. */
static void run(int epoll, int seconds) {
    struct epoll_event events[EVENTS_PER_WAIT];
    uint64_t began = now_us(), end = began + (uint64_t)seconds * 1000000, last_echo = began;
    size_t due = peer_count;
    memset(latencies, 0, sizeof(latencies));
    echoes = slowest_us = 0;
    for (size_t index = 0; index < peer_count; index++) {
        send_message(&peers[index]);
    }
    while (due > 0) {
        int count = epoll_wait(epoll, events, EVENTS_PER_WAIT, STALL_MILLISECONDS);
        if (count < 0 && errno != EINTR) {
            give_up("epoll_wait: %s", strerror(errno));
        }
        uint64_t now = now_us();
        if (count == 0 || now - last_echo > (uint64_t)STALL_MILLISECONDS * 1000) {
            give_up("%zu echoes are missing, and none came for %d ms", due, STALL_MILLISECONDS);
        }
        for (int index = 0; index < count; index++) {
            struct peer *peer = events[index].data.ptr;
            int waited = peer->waits_for_echo;
            read_frames(peer);
            if (waited && !peer->waits_for_echo) {
                last_echo = now;
                if (now < end) {
                    send_message(peer);
                } else {
                    due--;
                }
            }
        }
    }
    printf("{\"messages\": %lu, \"microseconds\": %lu, \"latency_us\": {\"p50\": %lu, \"p90\": %lu, \"p99\": %lu, \"p99.9\": %lu,"
           " \"max\": %lu}, \"problem\": null}\n", echoes, now_us() - began, percentile(0.50), percentile(0.90),
           percentile(0.99), percentile(0.999), slowest_us);
    fflush(stdout);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 5) {
        fprintf(stderr, "usage: websocket_load PORT PATH SOCKETS MESSAGE_BYTES\n");
        return 2;
    }
    peer_count = (size_t)atoi(arguments[3]);
    message_bytes = (size_t)atoi(arguments[4]);
    if (peer_count < 1 || peer_count > MAX_SOCKETS || message_bytes < MIN_MESSAGE_BYTES || message_bytes > MAX_MESSAGE_BYTES) {
        give_up("1 to %d sockets and %d to %d bytes are possible", MAX_SOCKETS, MIN_MESSAGE_BYTES, MAX_MESSAGE_BYTES);
    }
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    peers = calloc(peer_count, sizeof(struct peer));
    if (epoll < 0 || peers == NULL) {
        give_up("not enough memory or descriptors: %s", strerror(errno));
    }
    for (size_t index = 0; index < peer_count; index++) {
        open_peer(&peers[index], epoll, arguments[1], arguments[2]);
    }
    printf("{\"opened\": %zu, \"problem\": null}\n", peer_count);
    fflush(stdout);
    char line[32];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        int seconds = atoi(line);
        if (seconds < 1 || seconds > MAX_SECONDS) {
            give_up("1 to %d seconds are possible", MAX_SECONDS);
        }
        run(epoll, seconds);
    }
    return 0;
}
