// penstock info: the machine, what works here and why not, the limits, and the options in force.
#include "command.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

#include "common/files.hpp"
#include "device/direct_storage.hpp"
#include "os/env.hpp"
#include "os/file_kind.hpp"
#include "os/file_system.hpp"
#include "os/page_watch.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/version.hpp"
#include "runtime/runtime_state.hpp"
#include "settings/tables.hpp"

#if defined(PENSTOCK_WITH_CUDA)
#include <cuda_runtime.h>
#endif

namespace penstock::cli {

namespace {

using apps::unique_fd;
using nlohmann::json;

// Probes of the host and of its GPUs. Every probe does the thing itself, in small; none looks only
// at a version.

// `works` false: `why` says why not. True: `why` may add how.
struct finding {
    bool works = false;
    std::string why;
};

constexpr const char* own_program = "/proc/self/exe";
constexpr std::size_t probe_bytes = 4096;
alignas(4096) std::array<std::byte, probe_bytes> probed, by_pread;

// This program's own file, as the runtime opens files; else a negative errno.
unique_fd open_own_program() {
    const unique_fd found(host::linux_environment().find(-1, own_program));
    return unique_fd(found < 0 ? int{found} : host::linux_environment().open_found(found));
}

// Whether a probe read the first bytes of the program, `got` of them, as pread does.
finding compare_with_pread(int file, std::int64_t got) {
    if (got == host::linux_environment().read(file, by_pread.data(), probe_bytes, 0) &&
        std::memcmp(probed.data(), by_pread.data(), static_cast<std::size_t>(got)) == 0)
        return {true, ""};
    return {false, "a read gave other bytes than pread"};
}

finding probe_opening() {
    const unique_fd found(host::linux_environment().find(-1, own_program));
    std::string path;
    int code = found < 0 ? int{found} : host::linux_environment().real_path(found, path);
    if (code == 0) code = std::min(int{open_own_program()}, 0);
    if (code == 0) return {true, ""};
    return {false, host::is_proc_there() ? "through /proc/thread-self/fd: " + error_text(code)
                                         : error_text(-EUNATCH)};
}

finding probe_io_uring() {
    std::string why;
    const auto io = host::linux_environment().make_io_engine(true, 4, why);
    if (io == nullptr) return {false, why};
    const unique_fd file = open_own_program();
    if (file < 0) return {false, "a ring could be made, but no file opened to read with it"};
    io->start({file, probed.data(), probe_bytes, 0, 1});
    io->submit();
    std::vector<host::read_result> results;
    for (int round = 0; round < 20 && results.empty(); ++round) io->reap(results, 100'000'000);
    if (results.empty())
        return {false, "a ring could be made, but a read did not finish within two seconds"};
    const std::int64_t got = results[0].result;
    if (got < 0) return {false, "a ring could be made, but a read failed: " + error_text(got)};
    return compare_with_pread(file, got);
}

finding probe_direct_io() {
    host::environment& env = host::linux_environment();
    const unique_fd file = open_own_program();
    std::uint32_t grain_bytes = 0;
    if (file < 0) return {false, "no file could be opened to try it with"};
    const unique_fd direct(env.open_direct(file, grain_bytes));
    const std::int64_t got = direct < 0 ? direct : env.read(direct, probed.data(), probe_bytes, 0);
    if (got < 0)
        return {false, "the file system of the program refuses it: " + error_text(got) +
                           "; files there are read through the page cache"};
    finding out = compare_with_pread(file, got);
    if (!out.works) return out;
    out.why =
        "in pieces of " + std::to_string(grain_bytes) + " bytes, on the file system of the program";
    if (const int cached = env.in_page_cache(file, 0, probe_bytes); cached < 0)
        out.why += "; the kernel does not tell what is in the page cache (" + error_text(cached) +
                   "), so direct_io=auto does without it";
    return out;
}

finding probe_huge_pages() {
    constexpr const char* costs = "large caches cost more page faults";
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string line;
    if (!std::getline(file, line)) return {false, std::string("this kernel has none; ") + costs};
    if (line.find("[never]") == std::string::npos) return {true, line};
    return {false, "switched off (" + line + "); " + costs};
}

finding probe_exact_times() {
    const unique_fd here(host::linux_environment().find(-1, "."));
    host::file_facts facts;
    const int code = here < 0 ? int{here} : host::linux_environment().facts(here, facts);
    if (code != 0) return {false, "working directory: " + error_text(code)};
    if (facts.exact_times) return {true, ""};
    if (facts.times != host::file_times::local)
        return {false, "the working directory is on no local file system (" +
                           std::string(facts.file_system) +
                           "); `penstock info .` says what that means"};
    return {false,
            "the kernel or the file system of the working directory has coarse times; a file "
            "changed within the last 20 ms is read anew at the next open"};
}

// For regions in place.
finding probe_page_watch() {
    const unique_fd file = open_own_program();
    if (file < 0) return {false, "no file could be opened to try it with"};
    host::page_watch page(host::linux_environment());
    const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    int code = page.begin(file, 0, bytes);
    if (code == 0) code = page.watch(0, bytes);
    if (code == 0 && !page.has_left(0, bytes)) return {true, ""};
    return {false, "pages of a file cannot be watched (" + error_text(code) +
                       "); a region in place does not find pages that leave the file; mount /proc, "
                       "and use Linux 5.14 or newer"};
}

// For fills of regions. Only beside a GPU: cuFile does not come back from a call without a driver.
finding probe_direct_storage(const options& settings) {
    if (settings.direct_storage == direct_mode::off)
        return {false, "PENSTOCK_DIRECT_STORAGE is off"};
    auto& storage = host::direct_storage::of_process(settings.cufile_library);
    if (settings.direct_storage != direct_mode::on && !storage.may_have_path())
        return {false, "the kernel has neither nvidia-fs nor p2pmem of a GPU"};
    const host::direct_path path = host::paths_of(storage.report());
    return {path.is_direct, path.words};
}

struct gpu_facts {
    std::string driver;   // CUDA version that the driver supports, "13.0"; empty: no driver
    std::string runtime;  // CUDA version Penstock was built with; empty: built without
    std::string why;      // why there is no GPU to use; empty if there is one
    json gpus = json::array();
    finding windows, pinned, pageable, peers;  // if there is a GPU to use
};

#if defined(PENSTOCK_WITH_CUDA)

std::string version_text(int number) {
    return number == 0 ? std::string()
                       : std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// The words of the last CUDA error, which is thereby forgotten.
std::string reason(cudaError_t code) {
    cudaGetLastError();
    return cudaGetErrorString(code);
}

// A page of a mapped file, registered read only: then a GPU can read the operating system's page
// cache in place.
finding probe_windows() {
    const unique_fd file(::open(own_program, O_RDONLY | O_CLOEXEC));
    const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
    void* const page = file < 0
                           ? MAP_FAILED
                           : ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (page == MAP_FAILED) return {false, "no file could be mapped to try it with"};
    const cudaError_t code =
        cudaHostRegister(page, bytes, cudaHostRegisterReadOnly | cudaHostRegisterMapped);
    if (code == cudaSuccess) cudaHostUnregister(page);
    ::munmap(page, bytes);
    if (code == cudaSuccess) return {true, ""};
    return {false, "a page of a mapped file cannot be registered: " + reason(code)};
}

finding probe_pinned() {
    void* memory = nullptr;
    const cudaError_t code =
        cudaHostAlloc(&memory, 1 << 20, cudaHostAllocMapped | cudaHostAllocPortable);
    if (code != cudaSuccess) return {false, "1 MiB could not be pinned: " + reason(code)};
    cudaFreeHost(memory);
    return {true, ""};
}

finding ask_for_pageable(int device) {
    int can = 0;
    if (cudaDeviceGetAttribute(&can, cudaDevAttrPageableMemoryAccess, device) != cudaSuccess)
        cudaGetLastError();
    if (can != 0) return {true, ""};
    return {false, "no HMM and no ATS (cudaDevAttrPageableMemoryAccess is 0)"};
}

finding probe_peers(int count) {
    if (count < 2) return {false, "there is one GPU"};
    finding out{true, ""};
    for (int from = 0; from < count; ++from)
        for (int to = 0; to < count; ++to) {
            int can = 0;
            if (from == to || (cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0))
                continue;
            cudaGetLastError();
            out.works = false;
            out.why += (out.why.empty() ? "" : ", ") + ("not from GPU " + std::to_string(from)) +
                       " to " + std::to_string(to);
        }
    return out;
}

json describe(int number) {
    cudaDeviceProp facts{};
    std::size_t free = 0, total = 0;
    if (cudaGetDeviceProperties(&facts, number) != cudaSuccess) facts = {};
    else if (cudaSetDevice(number) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess)
        free = 0;
    return {{"number", number},
            {"name", facts.name},
            {"compute_capability",
             facts.major == 0 ? std::string()
                              : std::to_string(facts.major) + "." + std::to_string(facts.minor)},
            {"memory_bytes", facts.totalGlobalMem},
            {"free_bytes", free},
            {"multiprocessors", facts.multiProcessorCount}};
}

gpu_facts look_at_gpus(int device) {
    gpu_facts out;
    int driver = 0, runtime = 0, count = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    out.driver = version_text(driver);
    out.runtime = version_text(runtime);
    if (driver == 0) out.why = "no NVIDIA driver is loaded";
    else if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess)
        out.why = reason(code);
    else if (count == 0) out.why = "there is no GPU";
    cudaGetLastError();
    for (int i = 0; i < count; ++i) out.gpus.push_back(describe(i));
    if (out.why.empty() && cudaSetDevice(device) != cudaSuccess) {
        cudaGetLastError();
        out.why = "there is no GPU number " + std::to_string(device);
    }
    if (!out.why.empty()) return out;
    out.windows = probe_windows();
    out.pinned = probe_pinned();
    out.pageable = ask_for_pageable(device);
    out.peers = probe_peers(count);
    return out;
}

#else

gpu_facts look_at_gpus(int) {
    gpu_facts out;
    out.why = "this build has no CUDA; configure with nvcc on PATH";
    return out;
}

#endif

std::string in_column(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

// Sizes of memory are seldom whole.
std::string roughly(std::uint64_t bytes) {
    return apps::text_of("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

// Tells each fact twice, in the object for programs and in the text for people.
class info_command : public command {
public:
    info_command()
        : command({"info",
                   "Says which devices there are, what works on this machine and why not, the "
                   "limits, and the options in force.\n"
                   "Makes a runtime with these options to find out; exit status 1 if that fails.\n"
                   "Of each PATH it says what its file system tells of changes.\n",
                   "", true, "", apps::device_use::several}) {}

    void add_options(apps::option_list& add) override {
        add.optional_operands("PATH", paths_, "Files and folders: tell of their file systems too");
    }

    status run() override {
        const gpu_facts gpus =
            look_at_gpus(settings.devices.empty() ? settings.device : settings.devices.front());
        text_ = std::string("Penstock ") + version() + "\n\nDevices\n";
        tell_host();
        tell_gpus(gpus);
        text_ += "\nWhat works here\n";
        tell("opening files", probe_opening());
        tell("io_uring", probe_io_uring());
        tell("O_DIRECT", probe_direct_io());
        tell("transparent huge pages", probe_huge_pages());
        tell("exact file times", probe_exact_times());
        tell("pages of files watched", probe_page_watch());
        const finding none{false, gpus.why};
        tell("registered windows", gpus.why.empty() ? gpus.windows : none);
        tell("pinned host memory", gpus.why.empty() ? gpus.pinned : none);
        tell("pageable memory read by GPU", gpus.why.empty() ? gpus.pageable : none);
        tell("peer access between GPUs", gpus.why.empty() ? gpus.peers : none);
        tell("storage straight to GPU", gpus.why.empty() ? probe_direct_storage(settings) : none);
        text_ += "\nLimits\n";
        tell_limits();
        status made = tell_runtime();
        for (const std::string& path : paths_)
            if (const status told = tell_file_system(path); made.ok()) made = told;
        const status ended = report(object_, text_);
        return ended.ok() ? made : ended;
    }

private:
    void line(const std::string& name, const std::string& value) {
        text_ += "  " + in_column(name, 28) + value + "\n";
    }

    void tell(const char* feature, const finding& found) {
        object_["works"].push_back({{"what", feature}, {"works", found.works}, {"why", found.why}});
        line(feature, (found.works ? "yes" : "no") + (found.why.empty() ? "" : ": " + found.why));
    }

    status tell_file_system(const std::string& path) {
        host::environment& env = host::linux_environment();
        const unique_fd found(env.find(-1, path));
        host::file_facts facts;
        const int code = found < 0 ? int{found} : env.facts(found, facts);
        if (code != 0)
            return {code, apps::shown(path) + ": " + error_text(code) + "; name what exists"};
        const host::file_system_kind& kind = host::file_system_of(found);
        const host::mount_facts mount = host::mount_of_device(facts.identity.device);
        const std::string times =
            kind.is_local ? facts.exact_times ? "exact: no two changes have the same"
                                              : "of this machine's clock, by ticks; one younger "
                                                "than 20 ms (2 s in whole seconds) is no proof"
            : kind.times == host::file_times::server
                ? "of a server's clock, by up to 2 s; never compared with the clock here"
                : "may not tell of a change";
        const std::string writers = kind.is_local
                                        ? "leases tell of them all"
                                        : "unknown: leases tell of those of this machine only";
        const std::string pages = host::when_used_again(kind.times, settings.trust_times);
        object_["file_systems"].push_back({{"path", path},
                                           {"name", kind.name},
                                           {"mount_type", text_or_null(mount.type)},
                                           {"mount_point", text_or_null(mount.point)},
                                           {"mount_source", text_or_null(mount.source)},
                                           {"is_local", kind.is_local},
                                           {"times", times},
                                           {"writers", writers},
                                           {"pages", pages}});
        text_ += "\nFile system of " + apps::shown(path) + "\n";
        line("type", kind.name + (mount.type.empty() ? "" : ", mounted as " + mount.type));
        if (!mount.point.empty()) line("mount", mount.source + " at " + mount.point);
        line("changes", kind.is_local ? "local: all go through this kernel"
                                      : "not local: other machines or a server may change files");
        line("times", times);
        line("writers", writers);
        line("pages", pages);
        return {};
    }

    void tell_host() {
        utsname name{};
        const std::string kernel =
            ::uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : "";
        const unsigned processors = std::thread::hardware_concurrency();
        const std::uint64_t memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                           static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
        object_["host"] = {
            {"kernel", kernel}, {"processors", processors}, {"memory_bytes", memory_bytes}};
        line("CPU",
             std::to_string(processors) + " processors, " + roughly(memory_bytes) + ", " + kernel);
    }

    void tell_gpus(const gpu_facts& found) {
        object_["cuda"] = {{"built_with", text_or_null(found.runtime)},
                           {"driver", text_or_null(found.driver)},
                           {"why_not", text_or_null(found.why)}};
        object_["gpus"] = found.gpus;
        for (const json& gpu : found.gpus)
            line("GPU " + gpu["number"].dump(),
                 gpu["name"].get<std::string>() + ", " + roughly(gpu["memory_bytes"]) + ", " +
                     roughly(gpu["free_bytes"]) + " free, compute capability " +
                     gpu["compute_capability"].get<std::string>());
        if (!found.why.empty()) line("GPU", "none: " + found.why);
        if (!found.runtime.empty())
            line("CUDA", "built with " + found.runtime + ", driver for " +
                             (found.driver.empty() ? "none" : found.driver));
    }

    void tell_limit(const char* key, const char* name, __rlimit_resource resource,
                    std::string (*shown)(unsigned long long)) {
        rlimit limit{};
        if (::getrlimit(resource, &limit) != 0) limit.rlim_cur = 0;
        const bool limited = limit.rlim_cur != RLIM_INFINITY;
        object_["limits"][key] = limited ? json(limit.rlim_cur) : json(nullptr);
        line(name, limited ? shown(limit.rlim_cur) : "unlimited");
    }

    void tell_limits() {
        object_["limits"] = {{"page_bytes_least", 512},
                             {"page_bytes_most", 2 << 20},
                             {"cache_pages_most", engine::max_frames},
                             {"files_most", engine::max_file_slots}};
        tell_limit("open_files", "open files (ulimit -n)", RLIMIT_NOFILE, apps::with_commas);
        tell_limit("locked_bytes", "locked memory (ulimit -l)", RLIMIT_MEMLOCK,
                   [](unsigned long long bytes) { return format_size(bytes); });
        line("page size", "512 B to 2 MiB, a power of two");
        line("pages in a cache", "fewer than " + apps::with_commas(engine::max_frames));
        line("files open or remembered", "up to " + apps::with_commas(engine::max_file_slots));
    }

    // The options in force are those that the runtime settled, or those that were asked for if none
    // can be made; returns why.
    status tell_runtime() {
        std::vector<std::string> log;
        options in_force = settings;
        in_force.log = [&log](const std::string& said) { log.push_back(said); };
        std::unique_ptr<runtime> rt;
        const status made = runtime::make(in_force, rt);
        json facts = {{"made", made.ok()},       {"why_not", text_or_null(made.message)},
                      {"device", nullptr},       {"io", nullptr},
                      {"device_bytes", nullptr}, {"devices", json::array()},
                      {"links", json::array()}};
        if (made.ok()) {
            in_force = rt->settings();
            facts["device"] = rt->device_name();
            facts["io"] = rt->io_name();
            facts["device_bytes"] = rt->stats().device_bytes;
            facts["devices"] = devices_of(*rt);
            facts["links"] = links_of(*rt);
        }
        rt.reset();  // before the log it writes to
        facts["log"] = log;
        object_["runtime"] = facts;
        text_ += "\nOptions in force\n";
        for (const settings::option_entry& option : settings::option_entries())
            tell_option(option, in_force);
        tell_other_variables();
        text_ += "\nRuntime\n";
        for (const std::string& said : log) line("note", said);
        if (made.ok()) tell_made(facts);
        return made;
    }

    static json devices_of(const runtime& rt) {
        json out = json::array();
        for (std::uint32_t i = 0; i < rt.device_count(); ++i)
            out.push_back({{"number", rt.settings(i).device},
                           {"name", rt.device_name(i)},
                           {"cache_bytes", *rt.settings(i).cache_bytes},
                           {"device_bytes", rt.stats(i).device_bytes}});
        return out;
    }

    // From and to are places in the list of devices.
    static json links_of(const runtime& rt) {
        json out = json::array();
        for (std::uint32_t from = 0; from < rt.device_count(); ++from)
            for (std::uint32_t to = 0; to < rt.device_count(); ++to) {
                if (from == to) continue;
                const host::device_link link =
                    rt.settings().links
                        ? rt.state(from).device->link_to(*rt.state(to).device)
                        : host::device_link{host::link_kind::none, "PENSTOCK_LINKS is off"};
                out.push_back({{"from", from},
                               {"to", to},
                               {"kind", host::name_of(link.kind)},
                               {"reason", link.reason}});
            }
        return out;
    }

    void tell_made(const json& facts) {
        const json& devices = facts["devices"];
        const std::string where = devices.size() == 1 ? facts["device"].get<std::string>()
                                                      : std::to_string(devices.size()) + " devices",
                          io = facts["io"].get<std::string>();
        line("made", "on " + where + ", reading with " + io);
        line("device memory",
             format_size(facts["device_bytes"].get<std::uint64_t>()) + " allocated");
        if (devices.size() == 1) return;
        for (std::size_t i = 0; i < devices.size(); ++i)
            line("device " + std::to_string(i),
                 devices[i]["name"].get<std::string>() + ", number " + devices[i]["number"].dump() +
                     ", a cache of " + format_size(devices[i]["cache_bytes"].get<std::uint64_t>()) +
                     ", " + format_size(devices[i]["device_bytes"].get<std::uint64_t>()) +
                     " allocated");
        for (const json& link : facts["links"])
            line("link from " + link["from"].dump() + " to " + link["to"].dump(),
                 link["kind"].get<std::string>() + ": " + link["reason"].get<std::string>());
    }

    // `device` and `devices` are one choice: a flag for either counts more than both variables,
    // and where devices are named the first of them is the device.
    static bool is_device_choice(const settings::option_entry& option) {
        return std::string_view(option.flag).starts_with("--device");
    }
    static bool is_set(const char* variable) {
        const char* const text = std::getenv(variable);
        return text != nullptr && *text != '\0';
    }
    [[nodiscard]] bool is_flagged(const settings::option_entry& option) const {
        if (is_device_choice(option)) return !common.device.empty() || !common.devices.empty();
        return !apps::flag_text(common, option.flag).empty();
    }
    static bool is_in_environment(const settings::option_entry& option) {
        return is_set(option.variable) || (is_device_choice(option) && is_set("PENSTOCK_DEVICES"));
    }

    void tell_option(const settings::option_entry& option, const options& in_force) {
        const char* const source = is_flagged(option)                         ? "command line"
                                   : is_in_environment(option)                ? "environment"
                                   : settings::is_automatic(option, settings) ? "automatic"
                                                                              : "default";
        const std::string unit = option.unit == settings::unit::bytes ? "bytes"
                                 : option.unit == settings::unit::ms  ? "ms"
                                                                      : "",
                          value = settings::plain_text(option, in_force);
        object_["options"].push_back({{"name", option.name},
                                      {"environment", option.variable},
                                      {"unit", unit},
                                      {"value", value.empty()  ? json(nullptr)
                                                : unit.empty() ? json(value)
                                                               : json(std::stoull(value))},
                                      {"source", source}});
        text_ += "  " + in_column(option.name, 18) +
                 in_column(settings::shown_text(option, in_force), 24) + in_column(source, 14) +
                 option.variable + "\n";
    }

    // Variables that begin as those of options, and are of none: misspelled ones, and those of
    // other programs, which cannot be told from them. The Python package has some of its own.
    void tell_other_variables() {
        constexpr std::array of_package = {"PENSTOCK_INCLUDE", "PENSTOCK_NUMBA_LINK"};
        const auto options = settings::option_entries();
        object_["other_variables"] = json::array();
        for (char** at = ::environ; *at != nullptr; ++at) {
            const std::string name(*at, std::strcspn(*at, "="));
            if (!name.starts_with("PENSTOCK_") ||
                std::ranges::find(of_package, name) != of_package.end() ||
                std::ranges::any_of(options, [&](const auto& o) { return name == o.variable; }))
                continue;
            object_["other_variables"].push_back(name);
            text_ += "  " + name + " is set, and is the variable of no option\n";
        }
    }

    std::vector<std::string> paths_;
    json object_;
    std::string text_;
};

}  // namespace

std::unique_ptr<command> make_info() { return std::make_unique<info_command>(); }

}  // namespace penstock::cli
