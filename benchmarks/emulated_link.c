/* A long link between two network namespaces: one TUN device in each, and between them a delay, a rate and a queue that drops its tail.
 *
 *   emulated_link NAMESPACE_A NAMESPACE_B
 *
 * Answers each line of standard input with one line, and ends when standard input does, so it never outlives the program that started it:
 *   set RTT_SECONDS BYTES_PER_SECOND QUEUE_BYTES    delay, half of it each way; rate and queue of each direction
 *   read                                            bytes and drops of A to B, the same of B to A, CPU seconds so far
 *
 * Rates count what Ethernet would carry as payload: IP packets of at most the device's MTU. The kernel hands over TCP segments in bulk
 * (TSO), which saves most of the CPU time; a bulk counts, waits and is dropped as the packets that it stands for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 66000, PACKETS = 1 << 17, BURST = 32, COMMAND = 256 };
#define STORE ((size_t)192 << 20) /* bytes on their way in one direction; memory is taken only as they are used */
#define SECOND 1000000000LL
#define TOGETHER 50000LL /* packets due within 50 us go out together */

struct packet { int64_t due; size_t at; uint32_t length; };

struct direction {
    int from, to;
    struct packet *packets;
    unsigned char *store;
    uint32_t first, next; /* counters; modulo PACKETS they are places in `packets` */
    size_t end;           /* where the next packet goes in `store` */
    int64_t line_free;    /* when the line has sent all that it accepted */
    uint64_t bytes, drops;
};

static double rtt_seconds = 0.001, rate = 1e9, queue = 1e6;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static void fail(const char *doing, const char *what) {
    fprintf(stderr, "emulated_link: %s %s: %s\n", doing, what, strerror(errno));
    exit(1);
}

static int open_device(const char *name) {
    char path[300];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(path, sizeof path, "/var/run/netns/%s", name);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) < 0) fail("enter namespace", name);
    close(space);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) fail("open", "/dev/net/tun");
    strcpy(request.ifr_name, "link0");
    if (ioctl(device, TUNSETIFF, &request) < 0) fail("create link0 in", name);
    if (ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0) fail("set offloads of link0 in", name);
    return device;
}

/* Bytes of the packets that a bulk stands for: each repeats the headers. */
static size_t on_the_wire(const unsigned char *frame, size_t length) {
    struct virtio_net_hdr head;
    memcpy(&head, frame, sizeof head);
    size_t bytes = length - sizeof head;
    if (head.gso_type == VIRTIO_NET_HDR_GSO_NONE || !head.gso_size || bytes <= head.hdr_len) return bytes;
    return bytes + ((bytes - head.hdr_len - 1) / head.gso_size) * head.hdr_len;
}

/* Whether one more packet of any size fits; it is never split over the end of the store. */
static int room(struct direction *way) {
    if (way->first == way->next) {
        way->end = 0;
        return 1;
    }
    size_t oldest = way->packets[way->first % PACKETS].at;
    if (way->end > oldest && way->end + LARGEST > STORE) way->end = 0;
    return way->next - way->first < PACKETS && (way->end > oldest || way->end + LARGEST < oldest);
}

static void accept_packets(struct direction *way) {
    static unsigned char refused[LARGEST];
    for (int count = 0; count < BURST; count++) {
        int fits = room(way);
        unsigned char *frame = fits ? way->store + way->end : refused;
        ssize_t length = read(way->from, frame, LARGEST);
        if (length <= (ssize_t)sizeof(struct virtio_net_hdr)) return;
        int64_t at = now();
        if (way->line_free < at) way->line_free = at;
        double waiting = (double)(way->line_free - at) / SECOND * rate;
        size_t bytes = on_the_wire(frame, (size_t)length);
        if (!fits || waiting + (double)bytes > queue) {
            way->drops++;
            continue;
        }
        way->line_free += (int64_t)((double)bytes / rate * SECOND);
        struct packet *packet = &way->packets[way->next++ % PACKETS];
        *packet = (struct packet){way->line_free + (int64_t)(rtt_seconds / 2 * SECOND), way->end, (uint32_t)length};
        way->end += (size_t)length;
        way->bytes += bytes;
    }
}

/* Hand over what is due; return when the next packet is. */
static int64_t deliver(struct direction *way) {
    int64_t until = now() + TOGETHER;
    for (; way->first != way->next; way->first++) {
        struct packet *packet = &way->packets[way->first % PACKETS];
        if (packet->due > until) return packet->due;
        if (write(way->to, way->store + packet->at, packet->length) < 0 && errno == EAGAIN) return until;
    }
    return INT64_MAX;
}

static void answer(char *line, const struct direction *ways) {
    double seconds, bytes, longest;
    if (sscanf(line, "set %lf %lf %lf", &seconds, &bytes, &longest) == 3 && seconds >= 0 && bytes > 0 && longest > 0) {
        rtt_seconds = seconds, rate = bytes, queue = longest;
        printf("set\n");
    } else if (!strncmp(line, "read", 4)) {
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
        printf("%lu %lu %lu %lu %.2f\n", ways[0].bytes, ways[0].drops, ways[1].bytes, ways[1].drops, cpu);
    } else {
        printf("unknown command\n");
    }
    fflush(stdout);
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: emulated_link NAMESPACE_A NAMESPACE_B\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1000UL);
    struct direction ways[2] = {{0}, {0}};
    ways[0].from = ways[1].to = open_device(words[1]);
    ways[0].to = ways[1].from = open_device(words[2]);
    for (int i = 0; i < 2; i++) {
        ways[i].packets = calloc(PACKETS, sizeof(struct packet));
        ways[i].store = malloc(STORE);
        if (!ways[i].packets || !ways[i].store) fail("take memory for", "packets");
    }
    printf("up\n");
    fflush(stdout);
    for (char line[COMMAND] = "";;) {
        int64_t first = deliver(&ways[0]), second = deliver(&ways[1]), wait = (first < second ? first : second) - now();
        if (wait > SECOND) wait = SECOND;
        if (wait < 0) wait = 0;
        struct timespec pause = {wait / SECOND, wait % SECOND};
        struct pollfd ready[3] = {{ways[0].from, POLLIN, 0}, {ways[1].from, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        if (ppoll(ready, 3, &pause, NULL) <= 0) continue;
        for (int i = 0; i < 2; i++)
            if (ready[i].revents & POLLIN) accept_packets(&ways[i]);
        if (ready[2].revents) {
            ssize_t length = read(STDIN_FILENO, line, sizeof line - 1);
            if (length <= 0) return 0;
            line[length] = 0;
            answer(line, ways);
        }
    }
}
