/* A small libnvidia-ml.so.1 for tests: GPU 0 is healthy, GPU 1 is lost. FAKE_NVML in the environment makes it fail as
 * a whole. Calls with a versioned structure refuse one whose version is not filled in, as NVIDIA's library does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, SMALL = 7, LOST = 15, VERSION = 25 };

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int lost; int asked; } gpu;

static gpu gpus[2] = {{0, 0}, {1, 0}};
static gpu parts[3];

static int mode(const char *name) { const char *set = getenv("FAKE_NVML"); return set && !strcmp(set, name); }
static int ask(gpu *g) { g->asked++; return g->lost ? LOST : OK; }

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    if (mode("mismatch")) return 18;
    if (mode("denied")) return NO_PERMISSION;
    if (mode("not-loaded")) return 9;
    if (mode("unknown")) return 999;
    if (mode("new-error")) return 777;
    if (mode("slow-start")) sleep(60);
    return OK;
}
int nvmlShutdown(void) { if (getenv("FAKE_NVML_SAYS_BYE")) { puts("closed"); fflush(stdout); } return OK; }
const char *nvmlErrorString(int code) { return code == 777 ? "Cosmic Ray" : "?"; }

int nvmlSystemGetDriverVersion(char *text, u32 size) { snprintf(text, size, "580.95.05"); return OK; }
int nvmlSystemGetNVMLVersion(char *text, u32 size) { snprintf(text, size, "13.580.95.05"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlSystemGetConfComputeState(u32 *state) { memset(state, 0, 12); return NOT_SUPPORTED; }

int nvmlDeviceGetCount_v2(u32 *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, gpu **handle) {
    if (index > 1) return INVALID;
    *handle = &gpus[index];
    return OK;
}
int nvmlDeviceGetName(gpu *g, char *text, u32 size) {
    if (mode("bad-text")) { strcpy(text, "\xff\xfe\x1b[31m"); return OK; }
    snprintf(text, size, "NVIDIA H100 80GB HBM3");
    return ask(g);
}
int nvmlDeviceGetUUID(gpu *g, char *text, u32 size) {
    if (g >= parts && g < parts + 3) snprintf(text, size, "MIG-part-%d", (int)(g - parts));
    else snprintf(text, size, "GPU-asked-%d", g->asked);
    return ask(g);
}
int nvmlDeviceGetPciInfo_v3(gpu *g, void *info) {
    struct { char legacy[16]; u32 domain, bus, device, id, sub; char bus_id[32]; } *pci = info;
    pci->bus = 0x65;
    strcpy(pci->bus_id, "00000000:65:00.0");
    return ask(g);
}
int nvmlDeviceGetMaxMigDeviceCount(gpu *g, u32 *count) { *count = 3; return ask(g); }
int nvmlDeviceGetMigDeviceHandleByIndex(gpu *g, u32 index, gpu **part) { *part = &parts[index % 3]; return index == 1 ? 6 : ask(g); }
int nvmlDeviceGetCudaComputeCapability(gpu *g, int *major, int *minor) { *major = 9; *minor = 0; return ask(g); }
int nvmlDeviceGetMemoryInfo_v2(gpu *g, void *info) {
    struct { u32 version; u64 total, reserved, free, used; } *memory = info;
    if (memory->version != 0x2000028) return VERSION;
    memory->total = 80ull << 30; memory->used = 3ull << 30; memory->reserved = 1ull << 29;
    return ask(g);
}
int nvmlDeviceGetBAR1MemoryInfo(gpu *g, u64 *info) { info[0] = 128ull << 30; info[1] = info[0]; info[2] = 0; return ask(g); }
int nvmlDeviceGetUtilizationRates(gpu *g, u32 *rates) {
    if (mode("hang")) sleep(60);
    rates[0] = 97; rates[1] = 41;
    return ask(g);
}
/* Persistence mode is kept in the file that FAKE_NVML_STATE names, as the driver keeps it; without one it is on. */
static FILE *state(const char *how) { const char *path = getenv("FAKE_NVML_STATE"); return path ? fopen(path, how) : NULL; }
int nvmlDeviceGetPersistenceMode(gpu *g, u32 *mode_) {
    FILE *file = state("r");
    *mode_ = 1;
    if (file) { *mode_ = fgetc(file) == 0x31; fclose(file); }
    return ask(g);
}
int nvmlDeviceSetPersistenceMode(gpu *g, u32 mode_) {
    FILE *file;
    if (mode("read-only")) return NO_PERMISSION;
    if ((file = state(mode("deaf") ? "r" : "w"))) { if (!mode("deaf")) fputc(mode_ ? 0x31 : 0x30, file); fclose(file); }
    return ask(g);
}
int nvmlDeviceGetCurrentClocksEventReasons(gpu *g, u64 *reasons) { *reasons = 0x44; return ask(g); }
int nvmlDeviceGetClockInfo(gpu *g, u32 type, u32 *clock) { *clock = type == 2 ? 2619 : 1755; return ask(g); }
int nvmlDeviceGetTemperature(gpu *g, u32 sensor, u32 *celsius) { (void)sensor; *celsius = 64; return ask(g); }
int nvmlDeviceValidateInforom(gpu *g) { return mode("inforom") ? 14 : ask(g); }
int nvmlDeviceGetPowerUsage(gpu *g, u32 *milliwatts) { *milliwatts = 691200; return ask(g); }
int nvmlDeviceGetPowerManagementLimit(gpu *g, u32 *milliwatts) { (void)g; (void)milliwatts; return NO_PERMISSION; }
int nvmlDeviceGetMarginTemperature(gpu *g, void *info) {
    struct { u32 version; int margin; } *margin = info;
    if (margin->version != 0x1000008) return VERSION;
    margin->margin = -3;
    return ask(g);
}
int nvmlDeviceGetAddressingMode(gpu *g, void *info) {
    struct { u32 version, value; } *addressing = info;
    if (addressing->version != 0x1000008) return VERSION;
    addressing->value = 2;
    return ask(g);
}
int nvmlGpmQueryDeviceSupport(gpu *g, void *info) {
    struct { u32 version, supported; } *gpm = info;
    if (gpm->version != 1) return VERSION;
    gpm->supported = 1;
    return ask(g);
}
int nvmlDeviceGetEccMode(gpu *g, u32 *now, u32 *next) { *now = *next = 1; return ask(g); }
int nvmlDeviceGetTotalEccErrors(gpu *g, u32 type, u32 counter, u64 *count) { *count = type * 10 + counter; return ask(g); }
int nvmlDeviceGetSramEccErrorStatus(gpu *g, void *info) {
    struct { u32 version; u64 counts[11]; u32 exceeded; } *sram = info;
    if (sram->version != 0x1000068) return VERSION;
    sram->exceeded = 1;
    return ask(g);
}
int nvmlDeviceGetRemappedRows(gpu *g, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    *corrected = 2; *uncorrected = 1; *pending = 1; *failed = 0;
    return ask(g);
}
int nvmlDeviceGetMigMode(gpu *g, u32 *now, u32 *next) { (void)g; (void)now; (void)next; return NOT_SUPPORTED; }
int nvmlDeviceGetFieldValues(gpu *g, int count, void *values) {
    struct field { u32 id, scope; long long at, latency; u32 type; int code; union { double d; u32 u; u64 ull; } value; } *field = values;
    for (int i = 0; i < count; i++, field++) {
        field->code = field->id == 147 ? NOT_SUPPORTED : OK;
        field->type = field->id == 91 ? 1 : 3;
        if (field->id == 91) field->value.u = 2; else field->value.ull = field->id;
    }
    return ask(g);
}
int nvmlDeviceGetNvLinkState(gpu *g, u32 link, u32 *active) { *active = link == 0; return ask(g); }
int nvmlDeviceGetGpuFabricInfoV(gpu *g, void *info) {
    struct { u32 version; unsigned char cluster[16]; int status; u32 clique, state, health; } *fabric = info;
    if (fabric->version != 0x2000024) return VERSION;
    fabric->state = 3;
    return ask(g);
}
/* The first process that computes is the one whose number stands in the file that FAKE_NVML_USER names, else 4242. */
static u32 user(void) {
    const char *path = getenv("FAKE_NVML_USER");
    FILE *file = path ? fopen(path, "r") : NULL;
    u32 pid = 4242;
    if (file) { if (fscanf(file, "%u", &pid) != 1) pid = 4242; fclose(file); }
    return pid;
}
/* It takes 90 % of the time, and the other one, 4243, takes 10 %. */
int nvmlDeviceGetProcessUtilization(gpu *g, void *info, u32 *count, u64 since) {
    struct { u32 pid; u64 at; u32 sm, memory, encoder, decoder; } *sample = info;
    if (ask(g)) return LOST;
    if (!sample) { *count = 2; return SMALL; }
    sample[0].pid = user(); sample[0].at = since + 1; sample[0].sm = 90;
    sample[1].pid = 4243; sample[1].at = since + 2; sample[1].sm = 10;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(gpu *g, u32 *count, void *info) {
    struct { u32 pid; u64 used; u32 gi, ci; } *process = info;
    if (ask(g)) return LOST;
    if (*count < 2) { *count = 2; return SMALL; }
    *count = 2;
    process[0].pid = user(); process[0].used = 1ull << 30;
    process[1].pid = 4243; process[1].used = ~0ull;
    return OK;
}
int nvmlDeviceGetP2PStatus(gpu *one, gpu *two, u32 index, u32 *status) {
    (void)index;
    *status = one == two ? 0 : 3;
    return OK;
}

/* Activity: a sample holds the number of its reading; metrics tell their id and how many readings lie between. */
int nvmlGpmSampleAlloc(int **sample) { *sample = calloc(1, sizeof **sample); return OK; }
int nvmlGpmSampleFree(int *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(gpu *g, int *sample) {
    static int readings;
    if (mode("no-gpm")) return NOT_SUPPORTED;
    *sample = ++readings;
    return ask(g);
}
int nvmlGpmMetricsGet(void *info) {
    struct { u32 id, code; double value; char *texts[3]; } *metric;
    struct { u32 version, count; int *before, *after; } *asked = info;
    if (asked->version != 1) return VERSION;
    if (*asked->after <= *asked->before) return INVALID;
    metric = (void *)(asked + 1);
    for (u32 i = 0; i < asked->count; i++) {
        metric[i].code = metric[i].id == 10 ? NOT_SUPPORTED : OK;
        metric[i].value = metric[i].id + 100.0 * (*asked->after - *asked->before);
    }
    return OK;
}
