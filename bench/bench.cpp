// Runs the cases that were asked for, from the table of all, and prints their figures.
#include "bench.hpp"

#include <nlohmann/json.hpp>

#include "cases.hpp"
#include "common/files.hpp"
#include "common/message.hpp"
#include "machine.hpp"

namespace penstock::bench {

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
    {"gather", "random rows by an array of their numbers, against the same rows from plain memory",
     gather_on_cpu, gather_on_gpu},
    {"miss", "random pages and records of a file larger than the cache, against the bus or pread",
     miss_on_cpu, miss_on_gpu},
    {"sequential", "a whole file into the cache in order, against a pipeline by hand or pread",
     sequential_on_cpu, sequential_on_gpu},
    {"cold", "a file that is not in memory, against the best of O_DIRECT and buffered pread", cold,
     cold},
    {"request",
     "pages served by the service threads from the page cache, against pread; one round trip",
     request_path, request_path},
    {"write", "a kernel's output to a file, against copies back and pwrite by all cores",
     write_path, write_path},
    {"append",
     "records of all groups to the shared end of one file, against writes with O_APPEND by all "
     "cores",
     append_path, append_path},
    {"fsync",
     "fsync of few and many dirty pages while another file has none or many, against pwrite "
     "and fdatasync",
     fsync_path, fsync_path},
    {"acquire", "a region after a part of the file changed, against bringing the whole file again",
     acquire_path, acquire_path},
    {"sharing",
     "pages that a kernel and a program change at once, against a buffer of its own for each",
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
};

using json = nlohmann::ordered_json;

// Four digits are more than any of these figures is good for, and fewer hide a change of a tenth of
// a percent.
json rounded(double value) { return json::parse(text_of("%.5g", value)); }

json row_of(const figure& row) {
    return {{"goal", row.goal},
            {"case", row.name},
            {"backend", row.backend},
            {"page_bytes", row.page_bytes},
            {"value", rounded(row.values.ours.median())},
            {"unit", row.unit},
            {"baseline", row.baseline},
            {"baseline_value", rounded(row.values.baseline.median())},
            {"ratio", rounded(ratio_of(row))},
            {"cpu_cores_used", rounded(row.values.cores.median())},
            {"note", note_of(row)}};
}

void run_case(const bench_case& entry, context& here) {
    const case_body body = here.on_gpu() ? entry.on_gpu : entry.on_cpu;
    if (body == nullptr)
        return here.leave_out(entry.name, "it has nothing to measure on a GPU; give --backend cpu");
    here.progress(std::string(entry.name) + ": " + entry.about);
    try {
        body(here);
    } catch (const failure& ended) {
        throw failure(ended.code, std::string("bench ") + entry.name + ": " + ended.what());
    }
}

void print(const context& here, const json& machine) {
    // A line for each row, so that two files of results can be compared line by line.
    const auto line = [](const json& value) {
        return value.dump(-1, ' ', false, json::error_handler_t::replace);
    };
    std::string text = "{\"machine\":" + line(machine) + ",\n\"results\":[";
    const char* before = "\n";
    for (const figure& row : here.figures()) {
        text += before + line(row_of(row));
        before = ",\n";
    }
    text += "\n]}\n";
    apps::output_file standard_output;
    require(standard_output.open(""));
    require(standard_output.write(text.data(), text.size()));
}

void run_cases(const settings& asked, int device) {
    const backend where = choose_backend(asked.where, device);
    context here(asked, where);
    for (const std::string& name : asked.cases)
        for (const bench_case& entry : case_table)
            if (name == entry.name) run_case(entry, here);
    print(here, machine_json(where, asked.directory, asked.commit));
}

}  // namespace

std::string about_cases() {
    std::string out;
    for (const bench_case& entry : case_table) {
        std::string name = entry.name;
        name.resize(12, ' ');
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
