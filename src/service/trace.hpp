// NVTX ranges on the host, in a domain of their own, so that a profiler shows what the service
// threads do. NVTX is a header; without a profiler attached a range costs a few nanoseconds, and
// without CUDA it costs nothing.
#pragma once

#if defined(PENSTOCK_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PENSTOCK_HAS_NVTX 1
#else
#define PENSTOCK_HAS_NVTX 0
#endif

namespace penstock::host {

class trace_range {
public:
#if PENSTOCK_HAS_NVTX
    explicit trace_range(const char* name) {
        nvtxEventAttributes_t event{};
        event.version = NVTX_VERSION;
        event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        event.messageType = NVTX_MESSAGE_TYPE_ASCII;
        event.message.ascii = name;
        nvtxDomainRangePushEx(domain(), &event);
    }
    ~trace_range() { nvtxDomainRangePop(domain()); }
#else
    explicit trace_range(const char*) {}
    ~trace_range() {}
#endif
    trace_range(const trace_range&) = delete;
    trace_range& operator=(const trace_range&) = delete;

private:
#if PENSTOCK_HAS_NVTX
    static nvtxDomainHandle_t domain() {
        static const nvtxDomainHandle_t handle = nvtxDomainCreateA("penstock");
        return handle;
    }
#endif
};

}  // namespace penstock::host
