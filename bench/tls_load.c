/* The TLS handshake client: a new connection for each request, with a full handshake or a resumed session.
 *
 * `tls_load PORT PATH THREADS full|resumed`. It makes one connection first, prints one line of JSON, and then reads commands from
 * standard input: a number is the seconds to run for, and is answered with another line of JSON; the end of the input ends the
 * program. The first error ends the program, with a "problem" in its line: this includes a handshake that should have resumed and
 * did not, and one that resumed and should not have.
 *
 * Each thread has one connection at a time and blocks on it: handshake, a request with `Connection: close`, the whole answer. It
 * resumes the session of its last connection, because some servers accept each ticket only once. Nothing is verified: the
 * server's side is measured.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_THREADS = 256,
    BUFFER_BYTES = 4096,     /* the answer's head and its body */
    TIMEOUT_SECONDS = 10,   /* for each step of a connection */
    MAX_SECONDS = 3600,
    SLOTS = 200000,          /* of the histogram of latencies; the last one has all slower ones */
    LATENCY_STEP_US = 10
};

static SSL_CTX *context;
static int resumes_sessions;
static char request[1024];
static int request_bytes, port;
static uint64_t ends_at;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t latencies[SLOTS];
static uint64_t handshakes, slowest_us;

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
    pthread_mutex_lock(&lock);
    printf("{\"problem\": \"%s\"}\n", text);
    fflush(stdout);
    _exit(1);
}

__attribute__((noreturn)) static void give_up_tls(const char *what) {
    char reason[256];
    ERR_error_string_n(ERR_peek_error(), reason, sizeof(reason));
    give_up("%s: %s", what, ERR_peek_error() ? reason : strerror(errno));
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int connected(void) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = TIMEOUT_SECONDS};
    int on = 1, descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0) {
        give_up("no socket: %s", strerror(errno));
    }
    if (connect(descriptor, (struct sockaddr *)&address, sizeof(address)) != 0) {
        give_up("no connection: %s", strerror(errno));
    }
    return descriptor;
}

/* One connection from its beginning to its end. With `keep` its session is returned. */
static SSL_SESSION *visit(SSL_SESSION *resumes, int keep) {
    char answer[BUFFER_BYTES];
    int descriptor = connected(), length = 0, received;
    SSL *tls = SSL_new(context);
    if (tls == NULL || SSL_set_fd(tls, descriptor) != 1 || SSL_set_tlsext_host_name(tls, "localhost") != 1) {
        give_up_tls("no TLS");
    }
    if (resumes != NULL && SSL_set_session(tls, resumes) != 1) {
        give_up_tls("the session can't be used");
    }
    if (SSL_connect(tls) != 1) {
        give_up_tls("the handshake failed");
    }
    if (SSL_session_reused(tls) != (resumes != NULL)) {
        give_up("a handshake %s", resumes != NULL ? "did not resume the session" : "was not a full one");
    }
    if (SSL_write(tls, request, request_bytes) != request_bytes) {
        give_up_tls("the request could not be sent");
    }
    while (length < BUFFER_BYTES - 1 && (received = SSL_read(tls, answer + length, BUFFER_BYTES - 1 - length)) > 0) {
        length += received;
    }
    answer[length] = '\0';
    if (strncmp(answer, "HTTP/1.1 200", 12) != 0 || strstr(answer, "Hello, World!") == NULL) {
        give_up("the answer is not right: %.*s", (int)strcspn(answer, "\r"), answer);
    }
    /* With TLS 1.3 the session comes after the handshake; it has arrived by now. */
    SSL_SESSION *kept = keep ? SSL_get1_session(tls) : NULL;
    SSL_shutdown(tls);
    SSL_free(tls);
    close(descriptor);
    return kept;
}

static void *visit_for_long(void *kept) {
    SSL_SESSION **session = kept;
    while (now_us() < ends_at) {
        uint64_t began = now_us();
        SSL_SESSION *next = visit(*session, resumes_sessions);
        if (resumes_sessions) {
            SSL_SESSION_free(*session);
            *session = next;
        }
        uint64_t took = now_us() - began, slot = took / LATENCY_STEP_US;
        pthread_mutex_lock(&lock);
        latencies[slot < SLOTS ? slot : SLOTS - 1]++;
        slowest_us = took > slowest_us ? took : slowest_us;
        handshakes++;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* The latency of this percentile of the connections in microseconds, rounded up to a multiple of LATENCY_STEP_US. */
static uint64_t percentile(double part) {
    uint64_t seen = 0;
    for (uint64_t slot = 0; slot + 1 < SLOTS; slot++) {
        seen += latencies[slot];
        if ((double)seen >= part * (double)handshakes) {
            return (slot + 1) * LATENCY_STEP_US;
        }
    }
    return slowest_us;
}

static void run(int seconds, int threads, SSL_SESSION **sessions) {
    pthread_t started[MAX_THREADS];
    uint64_t began = now_us();
    ends_at = began + (uint64_t)seconds * 1000000;
    memset(latencies, 0, sizeof(latencies));
    handshakes = slowest_us = 0;
    for (int index = 0; index < threads; index++) {
        if (pthread_create(&started[index], NULL, visit_for_long, &sessions[index]) != 0) {
            give_up("no thread: %s", strerror(errno));
        }
    }
    for (int index = 0; index < threads; index++) {
        pthread_join(started[index], NULL);
    }
    printf("{\"handshakes\": %lu, \"microseconds\": %lu, \"latency_us\": {\"p50\": %lu, \"p90\": %lu, \"p99\": %lu, \"p99.9\": %lu,"
           " \"max\": %lu}, \"problem\": null}\n", handshakes, now_us() - began, percentile(0.50), percentile(0.90),
           percentile(0.99), percentile(0.999), slowest_us);
    fflush(stdout);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 5) {
        fprintf(stderr, "usage: tls_load PORT PATH THREADS full|resumed\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    port = atoi(arguments[1]);
    int threads = atoi(arguments[3]);
    if (threads < 1 || threads > MAX_THREADS) {
        give_up("there can be 1 to %d threads", MAX_THREADS);
    }
    request_bytes = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", arguments[2]);
    if (request_bytes < 0 || (size_t)request_bytes >= sizeof(request)) {
        give_up("the path is too long");
    }
    context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) {
        give_up_tls("no TLS");
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_SESSION *first = visit(NULL, 1);
    const char *protocol = SSL_SESSION_get_protocol_version(first) == TLS1_3_VERSION ? "TLSv1.3" : "TLSv1.2";
    resumes_sessions = strcmp(arguments[4], "resumed") == 0;
    if (resumes_sessions && !SSL_SESSION_is_resumable(first)) {
        give_up("the server gives no session that could be resumed");
    }
    SSL_SESSION *sessions[MAX_THREADS] = {NULL};
    for (int index = 0; resumes_sessions && index < threads; index++) {
        sessions[index] = visit(NULL, 1);
    }
    printf("{\"protocol\": \"%s\", \"cipher\": \"%s\", \"problem\": null}\n", protocol,
           SSL_CIPHER_get_name(SSL_SESSION_get0_cipher(first)));
    fflush(stdout);
    char line[32];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        int seconds = atoi(line);
        if (seconds < 1 || seconds > MAX_SECONDS) {
            give_up("the number of seconds is to be from 1 to %d", MAX_SECONDS);
        }
        run(seconds, threads, sessions);
    }
    return 0;
}
