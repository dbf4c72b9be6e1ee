// A tool that listens to NVTX, as nsys does: writes "push NAME" and "pop" to the file that NVTX_TOOL_FILE names.
// Layouts and numbers are those of NVTX 3's injection interface.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPORT_CALLBACKS = 1, MODULE_CORE2 = 5, PUSH = 4, POP = 5, REGISTER_STRING = 10 };

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;  // a string, or the handle that register_string gave
};
struct callbacks {
    size_t size;
    int (*functions)(int module, void ****table, unsigned *count);
};

static FILE *out;

static int push(void *domain, const struct attributes *event) {
    (void)domain;
    fprintf(out, "push %s\n", event->message ? event->message : "");
    fflush(out);
    return 0;
}

static int pop(void *domain) {
    (void)domain;
    fputs("pop\n", out);
    fflush(out);
    return 0;
}

static void *register_string(void *domain, const char *text) {
    (void)domain;
    return strdup(text);
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const struct callbacks *callbacks = export_table(EXPORT_CALLBACKS);
    void ***table = NULL;
    unsigned count = 0;
    const char *name = getenv("NVTX_TOOL_FILE");
    if (!callbacks || !name || !(out = fopen(name, "w")) || !callbacks->functions(MODULE_CORE2, &table, &count)) return 0;
    if (count <= REGISTER_STRING) return 0;
    *table[PUSH] = (void *)push;
    *table[POP] = (void *)pop;
    *table[REGISTER_STRING] = (void *)register_string;
    return 1;
}
