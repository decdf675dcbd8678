// Checks what was asked for, runs those cases from the table of all, and prints their figures.
#include "bench.hpp"

#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cases.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"

namespace penstock::bench {

// Settings, from the texts of the command line.

namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; !text.empty() && at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        out.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return out;
}

[[noreturn]] void refuse(const std::string& flag, const std::string& text, const std::string& why) {
    throw failure(-EINVAL, flag + ": " + apps::shown(text) + " " + why);
}

std::vector<std::uint64_t> sizes(const std::string& flag, const std::string& text) {
    std::vector<std::uint64_t> out;
    for (const std::string& word : split(text)) {
        require(parse_size(flag, word, out.emplace_back()));
        if (out.back() == 0) refuse(flag, word, "is no usable size; give one, such as 64KiB");
    }
    return out;
}

// 0 if nothing was given.
std::uint64_t number(const char* flag, const std::string& text, std::uint64_t most) {
    std::uint64_t out = 0;
    require(apps::parse_number<std::uint64_t>(
        flag, text, 1, most, "from 1 to " + std::to_string(most) + "; give one, such as 2", out));
    return out;
}

void settle_pages(const request& asked, settings& out) {
    out.page_bytes = sizes("--page", asked.page);
    std::uint64_t largest = out.page_bytes.empty() ? 65536 : 0;
    for (const std::uint64_t page : out.page_bytes) {
        if (page < 512 || page > (2u << 20) || !std::has_single_bit(page))
            refuse("--page", asked.page,
                   "holds " + std::to_string(page) +
                       ", which is no page size; give powers of two from 512 to 2MiB");
        largest = std::max(largest, page);
    }
    out.cache_bytes = sizes("--cache", asked.cache);
    for (const std::uint64_t cache : out.cache_bytes)
        if (cache / 8 < largest)
            refuse("--cache", asked.cache,
                   "holds " + format_size(cache) + ", less than 8 pages of " +
                       format_size(largest) + "; give " + format_size(8 * largest) + " or more");
}

void settle_file(const request& asked, settings& out) {
    const std::vector<std::uint64_t> bytes = sizes("--file", asked.file);
    if (bytes.size() > 1)
        refuse("--file", asked.file, "is more than one size; give one, such as 8GiB");
    if (!bytes.empty() && bytes[0] < file_step_bytes)
        refuse("--file", asked.file, "is too small to measure; give 2MiB or more");
    if (!bytes.empty())
        out.file_bytes = (bytes[0] + file_step_bytes - 1) / file_step_bytes * file_step_bytes;
    std::error_code ignored;
    out.directory = asked.directory.empty() ? std::filesystem::temp_directory_path(ignored).string()
                                            : asked.directory;
    if (!std::filesystem::is_directory(out.directory, ignored))
        refuse("--dir", out.directory,
               "is no directory; name one that exists and has room for the file");
    if (::access(out.directory.c_str(), W_OK) != 0)
        refuse("--dir", out.directory, "cannot be written to; name a directory that can");
}

std::vector<std::string> settle_cases(const request& asked, const std::vector<std::string>& known) {
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    std::vector<std::string> out;
    for (const std::string& name : asked.cases) {
        if (name == "all") return known;
        if (!has(known, name))
            throw failure(-EINVAL, "bench: " + apps::shown(name) + " is no case; give some of " +
                                       all + ", or all");
        if (!has(out, name)) out.push_back(name);
    }
    return out;
}

}  // namespace

settings settle(const request& asked, const std::vector<std::string>& known) {
    settings out;
    out.cases = settle_cases(asked, known);
    if (!asked.backend.empty()) require(parse_backend("--backend", asked.backend, out.where));
    settle_pages(asked, out);
    settle_file(asked, out);
    out.repeats = number("--repeats", asked.repeats, 1000);
    out.threads = number("--threads", asked.threads, 1024);
    for (const std::string& word : split(asked.service_threads)) {
        if (word.empty())
            refuse("--service-threads", asked.service_threads,
                   "has an empty part; give numbers such as 1,2,4");
        out.service_threads.push_back(number("--service-threads", word, 64));
    }
    out.commit = asked.commit.empty() ? "unknown" : asked.commit;
    out.sweep = asked.sweep;
    out.quiet = asked.quiet;
    return out;
}

namespace {

// A row of the table. A new case is a file of its own, or a part of one, and a row here.
struct bench_case {
    const char* name;
    const char* about;         // one line of the help
    case_body on_cpu, on_gpu;  // null: the case has nothing to do there
};

constexpr bench_case case_table[] = {
    {"hit", "copying reads of cached pages, against plain memory", hit_on_cpu, hit_on_gpu},
    {"map", "map, look at and unmap cached pages, against plain memory", map_on_cpu, map_on_gpu},
    {"element", "v[i] and for_each of cached elements, against plain memory", element_on_cpu,
     element_on_gpu},
    {"iterator", "CUB's sum of a file by iterators, against plain memory and the bus", nullptr,
     iterator_on_gpu},
    {"pieces", "CUB's sums of a file in pieces at a plain pointer, against the bus", nullptr,
     pieces_on_gpu},
    {"gather", "random rows by an array of their numbers, against the same rows from plain memory",
     gather_on_cpu, gather_on_gpu},
    {"table", "rows of a table by numbers, against plain memory", table_on_cpu, table_on_gpu},
    {"table-lists",
     "few and many rows of a table a call, against plain memory and what is done by hand", nullptr,
     lists_on_gpu},
    {"table-cold", "rows of a table whose file is not in memory, against io_uring by hand",
     cold_rows, cold_rows},
    {"links", "one file read by all GPUs, their caches linked, against a runtime for each", nullptr,
     links_on_gpus},
    {"links-one", "one GPU of several that are linked: pages of another, and what links cost it",
     nullptr, links_for_one_reader},
    {"processes", "caches that processes share on GPUs: ranks of a job, and a keeper", nullptr,
     processes_on_gpus},
    {"table-devices", "rows of a table by several GPUs, a list each, against one GPU", nullptr,
     tables_on_gpus},
    {"regions", "a region filled from a region on another GPU, against the file", nullptr,
     region_links},
    {"region-cache", "a region filled from the runtime's cache, against copying in the same memory",
     region_cache, region_cache},
    {"region-cold", "a region of a file that is not in memory, by cuFile and without, in turns",
     region_cold, region_cold},
    {"miss", "random pages and records of a file larger than the cache, against the bus or pread",
     miss_on_cpu, miss_on_gpu},
    {"sequential", "a whole file into the cache in order, against a pipeline by hand or pread",
     sequential_on_cpu, sequential_on_gpu},
    {"cold", "a file that is not in memory, against the best of O_DIRECT and buffered pread", cold,
     cold},
    {"request",
     "pages served by the service threads from the page cache, against pread; one round trip",
     request_path, request_path},
    {"write",
     "a kernel's output to a file, against copies back and pwrite by the best of 1, 4 and all "
     "threads",
     write_path, write_path},
    {"close", "a kernel that writes a file and closes it itself, against copies back and pwrite",
     closing_path, closing_path},
    {"append",
     "records of all groups to the shared end of one file, against writes with O_APPEND by the "
     "best of 1, 4 and all threads",
     append_path, append_path},
    {"fsync",
     "fsync of few and many dirty pages while another file has none or many, against pwrite "
     "and fdatasync",
     fsync_path, fsync_path},
    {"acquire", "a region after a part of the file changed, against bringing the whole file again",
     acquire_path, acquire_path},
    {"in-place", "a region in the page cache, against pinned memory and against filling a region",
     in_place_path, in_place_path},
    {"sharing",
     "pages that a kernel and a program change at once, or two GPUs, against a buffer of its own "
     "for each",
     sharing, sharing},
    {"peer",
     "reads through a mount of a file that is not in memory and partly with a region or in the "
     "cache, against its disk",
     peer, peer},
    {"mount", "programs at a mount, against the same at the file itself", mount_case, mount_case},
    {"evict",
     "which pages go first: a closed file's, clean or dirty ones, with up to 64 times as many "
     "as fit",
     evict_on_cpu, nullptr},
    {"merge", "merging what two wrote to one page, against copying the page", merge_on_cpu,
     merge_on_gpu},
    {"signature", "signatures of blocks of 4 KiB, against all cores and one", signature_speed,
     signature_speed},
    {"exchange", "pages of a buffer that change places between host and device, against the bus",
     exchange_path, exchange_path},
    {"buffer",
     "pages of a buffer fixed and unfixed in the host, and found in the device, against plain "
     "memory and pread",
     buffer_path, buffer_path},
    {"policy", "replacement policies over traces, by simulation, against the optimum", policy_case,
     policy_case},
    {"admission",
     "which missed pages should enter the cache, by simulation, against reading all through",
     admission_case, admission_case},
    {"neighbours",
     "where pages of linked caches lie, by simulation, against the best static placement",
     neighbours_case, neighbours_case},
    {"versions",
     "memory for the versions of pages that devices change, against a record for each page",
     versions_case, versions_case},
};

void run_case(const bench_case& entry, context& here) {
    const case_body body = here.on_gpu() ? entry.on_gpu : entry.on_cpu;
    if (body == nullptr)
        return here.leave_out(
            entry.name, here.on_gpu() ? "it has nothing to measure on a GPU; give --backend cpu"
                                      : "it has nothing to measure without a GPU");
    here.progress(std::string(entry.name) + ": " + entry.about);
    try {
        body(here);
    } catch (const failure& ended) {
        throw failure(ended.code, std::string("bench ") + entry.name + ": " + ended.what());
    }
}

void run_cases(const settings& asked, int device) {
    const backend where = choose_backend(asked.where, device);
    row_printer out(machine_json(where, asked.directory, asked.commit)
                        .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    context here(asked, where, out);
    try {
        for (const std::string& name : asked.cases)
            for (const bench_case& entry : case_table)
                if (name == entry.name) run_case(entry, here);
    } catch (const failure&) {
        out.end_early();
        throw;
    }
    if (asked.commit == "unknown")
        apps::say("bench: the results name no commit; give --commit with what was built");
    out.end();
}

}  // namespace

std::string about_cases() {
    std::string out;
    for (const bench_case& entry : case_table) {
        std::string name = entry.name;
        name.resize(15, ' ');
        out += "  " + name + entry.about + "\n";
    }
    return out;
}

int run(const request& asked) {
    int if_it_fails = apps::exit_usage;
    try {
        std::vector<std::string> known;
        for (const bench_case& entry : case_table) known.emplace_back(entry.name);
        const settings settled = settle(asked, known);
        options from_variables;
        require(options::from_environment(from_variables));
        require(from_variables.check());
        if_it_fails = apps::exit_failed;
        run_cases(settled, from_variables.device);
        return apps::exit_done;
    } catch (const failure& ended) {
        if (ended.code != -EPIPE) apps::say(ended.what());
        return if_it_fails;
    }
}

}  // namespace penstock::bench
