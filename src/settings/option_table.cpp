// The rows of the table of options.
#include "settings/tables.hpp"

#include <bit>

#include "penstock/shared_file.hpp"

namespace penstock::settings {

status check_distinct(const std::vector<int>& gpus) {
    for (std::size_t i = 0; i < gpus.size(); ++i)
        for (std::size_t k = i + 1; k < gpus.size(); ++k)
            if (gpus[i] == gpus[k])
                return {-EINVAL, "devices: GPU " + std::to_string(gpus[i]) +
                                     " is named twice; name each GPU once"};
    return {};
}

namespace {

constexpr std::uint64_t kib = 1024, mib = kib * 1024, gib = mib * 1024, tib = gib * 1024;

constexpr std::uint64_t least_page = 512, most_page = 2 * mib;

status check_page(const options& o) {
    if (o.page_bytes >= least_page && o.page_bytes <= most_page &&
        std::has_single_bit(o.page_bytes))
        return {};
    return {-EINVAL, "page_bytes: " + std::to_string(o.page_bytes) +
                         " is not usable; give a power of two from " + std::to_string(least_page) +
                         " to " + std::to_string(most_page) + " (" + format_size(most_page) + ")"};
}

// Frames begin at a multiple of it. It is what every allocation of CUDA has, and keeps what kernels
// see of a mapped page aligned as its place in the file.
constexpr std::uint64_t frame_alignment_bytes = 256;

status check_cache_memory(const options& o) {
    if (o.cache_memory == nullptr) return {};
    const auto address = reinterpret_cast<std::uintptr_t>(o.cache_memory);
    const std::string memory = "cache_memory: " + shown_address(o.cache_memory);
    if (!o.cache_bytes)
        return {-EINVAL, memory +
                             " is given without a size; give cache_bytes too, as many as the "
                             "memory has"};
    if (o.where == backend::automatic)
        return {-EINVAL, memory +
                             " is memory of one back end, and where is auto; give where: gpu for "
                             "device memory, cpu for memory of the process"};
    if (address % frame_alignment_bytes != 0)
        return {-EINVAL, memory + " is no multiple of " + std::to_string(frame_alignment_bytes) +
                             "; give memory that begins at one"};
    if (*o.cache_bytes > UINTPTR_MAX - address)
        return {-EINVAL, memory + " and cache_bytes: " + format_size(*o.cache_bytes) +
                             " reach past the last address; give the size of the memory"};
    return {};
}

status check_cache(const options& o) {
    if (!o.cache_bytes || *o.cache_bytes >= 8 * o.page_bytes) return check_cache_memory(o);
    return {-EINVAL, "cache_bytes: " + format_size(*o.cache_bytes) + " is less than 8 pages of " +
                         format_size(o.page_bytes) + "; give at least " +
                         format_size(8 * o.page_bytes)};
}

status check_most_threads(const options& o) {
    if (!o.most_service_threads || !o.service_threads ||
        *o.most_service_threads >= *o.service_threads)
        return {};
    return {-EINVAL, "most_service_threads: " + std::to_string(*o.most_service_threads) +
                         " is less than service_threads: " + std::to_string(*o.service_threads) +
                         "; give as many at least, or leave it out"};
}

status check_device(const options& o) {
    if (o.device >= 0 || !o.devices.empty()) return {};
    return {-EINVAL,
            "device: " + std::to_string(o.device) + " is negative; device numbers start at 0"};
}

status check_devices(const options& o) {
    if (o.devices.size() > most_runtime_devices)
        return {-EINVAL, "devices: " + std::to_string(o.devices.size()) +
                             " are named, and a runtime has at most " +
                             std::to_string(most_runtime_devices) + "; name fewer"};
    for (const int device : o.devices)
        if (device < 0)
            return {-EINVAL, "devices: " + std::to_string(device) +
                                 " is negative; device numbers start at 0"};
    if (o.devices.size() > 1 && o.cache_memory != nullptr)
        return {-EINVAL, "cache_memory: " + shown_address(o.cache_memory) +
                             " is memory of one device, and devices names " +
                             std::to_string(o.devices.size()) +
                             "; name one, or let the runtime allocate the caches"};
    return o.where == backend::gpu ? check_distinct(o.devices) : status{};
}

status check_share(const options& o) {
    constexpr std::size_t most = 64;
    if (o.share.empty()) return {};
    const std::string share = "share: '" + o.share + "'";
    const bool is_name = o.share.size() <= most && o.share.front() != '.' &&
                         o.share.find_first_not_of(
                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "._-") == std::string::npos;
    if (!is_name)
        return {-EINVAL, share + " is no name; give up to " + std::to_string(most) +
                             " letters, digits, '.', '_' and '-', the first no '.'"};
    // It has a folder and a file of its name beside the agent's.
    if (o.share == "agent" || o.share == "agent.lock")
        return {-EINVAL, share +
                             " is the name of the socket of penstock-agent in the same folder; "
                             "give another name"};
    if (o.cache_memory != nullptr)
        return {-EINVAL, share + " shares the frames, and frames in cache_memory: " +
                             shown_address(o.cache_memory) +
                             " cannot be shared; leave one of the two out"};
    if (o.devices.size() > 1 && !o.links)
        return {-EINVAL, share + " links the " + std::to_string(o.devices.size()) +
                             " devices with each other too, and links is off; leave one of the "
                             "two out"};
    return {};
}

// What a Unix socket can be named at most.
constexpr std::size_t most_socket_path = 107;

status check_block_store(const options& o) {
    if (o.block_store.empty() ||
        (o.block_store.front() == '/' && o.block_store.size() <= most_socket_path))
        return {};
    return {-EINVAL, "block_store: '" + o.block_store +
                         "' is no path of a socket; give an absolute "
                         "path of up to " +
                         std::to_string(most_socket_path) + " bytes, as penstock-agent prints it"};
}

// The price of max_files, and the table in docs/guide/limits.md, name it.
static_assert(sizeof(engine::write_record) == 128);

constexpr option_entry entries[] = {
    {{"where", "PENSTOCK_BACKEND", "--backend", part::place},
     {&options::where},
     {": a GPU if one is usable, else CPU threads, said in the log", "auto, gpu, cpu",
      "a silent fall-back would be wrong: gpu makes it an error", "none"}},
    {{"device", "PENSTOCK_DEVICE", "--device", part::place},
     {&options::device},
     {"", "CUDA device numbers", "there are several GPUs, and the runtime is to use one", "none"},
     check_device},
    {{"devices", "PENSTOCK_DEVICES", "--devices", part::place},
     {&options::devices},
     {": the one in `device`",
      "up to 8 CUDA device numbers with commas between, each once; on cpu any from 0, one more "
      "cache for each",
      "a runtime is to have several caches", "what one device takes, for each of them"},
     check_devices},
    {{"links", "PENSTOCK_LINKS", "", part::place},
     {&options::links},
     {"", "on, off",
      "the devices read files that have nothing in common, or to see what links do: off",
      "a page that another device holds comes from the file again"}},
    {{"share", "PENSTOCK_SHARE", "", part::place},
     {&options::share},
     {"",
      "a name of up to 64 letters, digits, `.`, `_` and `-`, the first no `.`, not `agent` "
      "or `agent.lock`; not with `cache_memory`",
      "several processes of one user read the same files, or a cache is to outlive its jobs "
      "([several-processes.md](several-processes.md))",
      "every process of that user with that name can read all cached bytes; an open for writing "
      "waits for the others"},
     check_share},
    {{"publish_statistics", "PENSTOCK_STATISTICS", "", part::place},
     {&options::publish_statistics},
     {"", "on, off",
      "no program of the same user may read the counts of this one "
      "([operating.md](operating.md)): off",
      "8 KiB and a descriptor for each device; while a program asks, a thread that counts"}},
    {{"worker_threads", "PENSTOCK_WORKERS", "--workers", part::place},
     {&options::worker_threads, unit::none, 1, 1024},
     {": one for each processor", " threads", "cpu back end only: other work needs the processors",
      "a stack each"}},
    // The page before the cache, whose least size depends on it.
    {{"page_bytes", "PENSTOCK_PAGE", "--page", part::cache},
     {&options::page_bytes, unit::bytes, least_page, most_page},
     {"", ", a power of two",
      "512 B to 4 KiB for small scattered reads, 256 KiB and more for streaming",
      "small pages: more requests for the same bytes and more table; large ones: bytes loaded that "
      "are not read"},
     check_page},
    {{"cache_bytes", "PENSTOCK_CACHE", "--cache", part::cache},
     {&options::cache_bytes, unit::bytes},
     {": a quarter of the GPU's free memory; on cpu a sixteenth of the machine's, at most 1 GiB",
      "8 pages to the device's free memory; fewer than 268,435,456 pages",
      "misses are many (`misses` against `hits` in the statistics)",
      "device memory, taken at once"},
     check_cache},
    {{"table_bytes", "PENSTOCK_TABLE", "", part::cache},
     {&options::table_bytes, unit::bytes, 64 * kib, tib},
     {"", "", "`open` gives `ENOMEM`: 8 bytes for each page of every open or remembered file",
      "device memory"}},
    {{"max_files", "PENSTOCK_MAX_FILES", "", part::cache},
     {&options::max_files, unit::none, 16, 1u << 19},
     {"", "", "`open` gives `ENFILE`, or many more files are visited again and again",
      "about 350 bytes of device memory a file, 128 more with `writable`"}},
    {{"service_threads", "PENSTOCK_SERVICE_THREADS", "", part::way},
     {&options::service_threads, unit::none, 1, 64},
     {": one for every four processors, 1 to 4", " threads, each with rings of its own",
      "`ring_waits` grows, or the files come from many fast disks",
      "a thread; idle ones sleep, but on a GPU one looks for all"}},
    {{"most_service_threads", "PENSTOCK_MOST_SERVICE_THREADS", "", part::way},
     {&options::most_service_threads, unit::none, 1, 64},
     {": `service_threads` where that is given, else one for every processor, 4 to 16",
      " threads, `service_threads` of them always there",
      "files lie on disks or servers that may take seconds: more; no thread may come later: as "
      "`service_threads`",
      "a thread and an io_uring for each that was needed; it sleeps afterwards"},
     check_most_threads},
    {{"staging_bytes", "PENSTOCK_STAGING", "", part::way},
     {&options::staging_bytes, unit::bytes, mib, 16 * gib},
     {": 128 MiB on gpu, 16 MiB on cpu", ", divided over the rings",
      "`ring_waits` grows: it bounds the requests in flight", "host memory, pinned on gpu"}},
    {{"window_bytes", "PENSTOCK_WINDOW", "", part::way},
     {&options::window_bytes, unit::bytes, 2 * mib, tib, true},
     {": half of the machine's memory", " for none",
      "`open_windows` opens less than the files have",
      "memory of the page cache that cannot be reclaimed while the windows are open; the host tier "
      "is part of it"}},
    {{"admit_one_in", "PENSTOCK_ADMIT_ONE_IN", "", part::way},
     {&options::admit_one_in, unit::none, 1, 65536},
     {"", "; 1: every page that is missed",
      "files are read through windows, and the pages that are wanted change often: less; most "
      "pages "
      "are wanted once: more",
      "small numbers: pages push out others that were wanted more often; large ones: it takes "
      "longer until a page that is wanted often is in the cache"}},
    {{"tier_bytes", "PENSTOCK_TIER", "", part::way},
     {&options::tier_bytes, unit::bytes, 0, tib},
     {": no tier, and no reading ahead", ", at least 8 pages if not 0, at most `window_bytes`",
      "pages that the cache dropped are read again (`tier_loads` is large, `tier_evictions` too), "
      "or many readers go through files in order",
      "host memory, pinned on gpu, and 8 bytes of device memory for each word of `table_bytes`"}},
    {{"writable", "PENSTOCK_WRITABLE", "", part::way},
     {&options::writable, unit::zero_or_one},
     {"", "0, 1", "kernels write files; off, an open for writing gives `EROFS`",
      "an eighth of `cache_bytes` more device memory, for a mark of each written byte; staging "
      "areas an eighth larger"}},
    {{"write_behind_bytes", "PENSTOCK_WRITE_BEHIND", "", part::way},
     {&options::write_behind_bytes, unit::bytes, 0, tib},
     {": a quarter of `cache_bytes`", "; `cache_bytes` or more: never",
      "a kernel writes the same pages again and again, more than that: more, or all of it; it "
      "computes long between its writes: less",
      "groups that write wait for a write-back now and then, and a page that is written again goes "
      "to the file again"}},
    {{"io", "PENSTOCK_IO", "", part::way},
     {&options::io},
     {": what the page cache has at once, the rest by io_uring; pread where the kernel refuses it, "
      "said in the log",
      "auto, uring, pread", "a silent fall-back would be wrong: uring makes it an error",
      "pread serves one read at a time per thread"}},
    {{"direct_io", "PENSTOCK_DIRECT_IO", "", part::way},
     {&options::direct_io},
     {": reads of up to 64 KiB at random, for the first time, of pages that are not in the page "
      "cache, with io_uring",
      "auto, off, on",
      "the page cache should not be touched: on; or files are read again by others: off",
      "what was read past the page cache is not in it the next time; 256 KiB of memory and a "
      "second descriptor for each open file read so"}},
    {{"registered_buffers", "PENSTOCK_REGISTERED_BUFFERS", "", part::way},
     {&options::registered_buffers},
     {": staging memory is registered with io_uring once as much was read past the page cache",
      "on, off", "the memory must not count as locked: off",
      "staging memory is locked, up to `staging_bytes`"}},
    {{"direct_storage", "PENSTOCK_DIRECT_STORAGE", "", part::way},
     {&options::direct_storage},
     {": fills of regions from 64 MiB on, of what is not in the page cache, where cuFile reports a "
      "direct path",
      "auto, off, on",
      "cuFile must not be loaded: off; its compatibility mode is to be measured: on "
      "([regions.md](regions.md))",
      "64 MiB of device memory during the fill, and the time to load and open cuFile, once; what "
      "came so is not in the page cache"}},
    {{"cufile_library", "PENSTOCK_CUFILE_LIBRARY", "", part::way},
     {&options::cufile_library},
     {": libcufile.so.0 or libcufile.so, as the system finds them", "the path of a file",
      "cuFile lies where the system does not look", "none"}},
    {{"trust_times", "PENSTOCK_TRUST_TIMES", "", part::way},
     {&options::trust_times},
     {": of local file systems, NFS, SMB, Ceph, Lustre, GPFS, GFS2, OCFS2 and AFS; not of FUSE",
      "auto, off, on",
      "files on FUSE or an unknown file system do not change, or their times tell of each change "
      "when it is closed: on; clocks of machines that write to a network file system are seconds "
      "apart: off ([network-file-systems.md](network-file-systems.md))",
      "on: old bytes where times do not tell of a change; off: each open of a file on a network "
      "file system reads it anew"}},
    {{"block_store", "PENSTOCK_STORE", "", part::way},
     {&options::block_store},
     {"", "the absolute path, up to 107 bytes, of the socket of an agent",
      "many nodes read the same files of a network file system "
      "([block-store.md](block-store.md))",
      "64 MiB of memory, 8 threads and 16 MiB shared with the agent; a block that no node has is "
      "read whole, 2 MiB"},
     check_block_store},
    {{"block_store_namespace", "PENSTOCK_STORE_NAMESPACE", "", part::way},
     {&options::block_store_namespace},
     {"", "any text", "two clusters of programs use one store and must not share blocks", "none"}},
    {{"block_store_local", "PENSTOCK_STORE_LOCAL", "", part::way},
     {&options::block_store_local, unit::zero_or_one},
     {"", "0, 1", "files of local file systems are to be in the store, too, for instance in a test",
      "blocks that no other node asks for"}},
    {{"frame_wait_ms", "PENSTOCK_FRAME_WAIT_MS", "", part::waits},
     {&options::frame_wait_ms, unit::ms, 1, 600000},
     {"", "", "mappings are held long while others need frames",
      "longer until `ENOBUFS` when every frame stays pinned, or `ENFILE` when every file stays "
      "open"}},
    {{"request_wait_ms", "PENSTOCK_REQUEST_WAIT_MS", "", part::waits},
     {&options::request_wait_ms, unit::ms, 1, 600000},
     {"", "", "the disk can be slower than that (a spun-down disk, a network)",
      "longer until `ETIMEDOUT` when it does not answer"}},
    {{"host_wait_ms", "PENSTOCK_HOST_WAIT_MS", "", part::waits},
     {&options::host_wait_ms, unit::ms, 100, 600000},
     {"", "", "the machine is so busy that the 20 ms heartbeat is late",
      "longer until `ETIMEDOUT` of a kernel whose process is stopped"}},
    {{"block_store_wait_ms", "PENSTOCK_STORE_WAIT_MS", "", part::waits},
     {&options::block_store_wait_ms, unit::ms, 1, 60000},
     {"", "",
      "links between nodes are slow: 2 MiB take 17 ms at 1 Gbit/s, and 8 may be under way; or the "
      "file server is, and nodes read the same file at once: a node waits half of this for another "
      "that reads a block",
      "a miss waits longer for a store that does not answer, until its file is read"}},
    {{"roots", "PENSTOCK_ROOTS", "", part::way},
     {&options::roots},
     {"the working directory when the runtime is made", "existing directories, separated by colons",
      "kernels must open files elsewhere",
      "none; what lies outside gives `EACCES`, also through `..` or a link"}}};

}  // namespace

std::span<const option_entry> option_entries() { return entries; }

}  // namespace penstock::settings
