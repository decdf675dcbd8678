// Runs the cases that were asked for, from the table of all, and prints their figures.
#include "bench.hpp"

#include <nlohmann/json.hpp>

#include "cases.hpp"
#include "common/files.hpp"
#include "common/message.hpp"
#include "machine.hpp"

namespace penstock::bench {

#if defined(PENSTOCK_WITH_CUDA)
#define PENSTOCK_BENCH_GPU(body) body
#else
#define PENSTOCK_BENCH_GPU(body) nullptr
#endif

const std::vector<bench_case>& case_table() {
    static const std::vector<bench_case> table = {
        {"hit", "copying reads of cached pages, against plain memory", hit_on_cpu,
         PENSTOCK_BENCH_GPU(hit_on_gpu)},
        {"map", "map, look at and unmap cached pages, against plain memory", map_on_cpu,
         PENSTOCK_BENCH_GPU(map_on_gpu)},
        {"element", "v[i] and for_each of cached elements, against plain memory", element_on_cpu,
         PENSTOCK_BENCH_GPU(element_on_gpu)},
        {"gather",
         "random rows by an array of their numbers, against the same rows from plain memory",
         gather_on_cpu, PENSTOCK_BENCH_GPU(gather_on_gpu)},
        {"miss",
         "random pages and records of a file larger than the cache, against the bus or pread",
         miss_on_cpu, PENSTOCK_BENCH_GPU(miss_on_gpu)},
        {"sequential", "a whole file into the cache in order, against a pipeline by hand or pread",
         sequential_on_cpu, PENSTOCK_BENCH_GPU(sequential_on_gpu)},
        {"cold", "a file that is not in memory, against the best of O_DIRECT and buffered pread",
         cold, cold},
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
        {"acquire",
         "a region after a part of the file changed, against bringing the whole file again",
         acquire_path, acquire_path},
        {"sharing",
         "pages that a kernel and a program change at once, against a buffer of its own for each",
         sharing, sharing},
        {"peer",
         "reads through a mount of a file that is not in memory and partly with a region or in the "
         "cache, against its disk",
         peer, peer},
        {"mount", "programs at a mount, against the same at the file itself", mount_case,
         mount_case},
        {"evict",
         "which pages go first: a closed file's, clean or dirty ones, with up to 64 times as many "
         "as fit",
         evict_on_cpu, nullptr},
        {"merge", "merging what two wrote to one page, against copying the page", merge_on_cpu,
         PENSTOCK_BENCH_GPU(merge_on_gpu)},
        {"signature", "signatures of blocks of 4 KiB, against all cores and one", signature_speed,
         signature_speed},
        {"exchange",
         "pages of a buffer that change places between host and device, against the bus",
         exchange_path, exchange_path},
        {"buffer",
         "pages of a buffer fixed and unfixed in the host, and found in the device, against plain "
         "memory and pread",
         buffer_path, buffer_path},
        {"policy", "replacement policies over traces, by simulation, against the optimum",
         policy_case, policy_case},
    };
    return table;
}

namespace {

using json = nlohmann::ordered_json;

// Four digits are more than any of these figures is good for, and fewer hide a change of a tenth of
// a percent.
json rounded(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.5g", value);
    return json::parse(text);
}

json row_of(const figure& one) {
    return {{"goal", one.goal},
            {"case", one.name},
            {"backend", one.backend},
            {"page_bytes", one.page_bytes},
            {"value", rounded(one.value.median())},
            {"unit", one.unit},
            {"baseline", one.baseline},
            {"baseline_value", rounded(one.baseline_value.median())},
            {"ratio", rounded(ratio_of(one))},
            {"cpu_cores_used", rounded(one.cores.median())},
            {"note", note_of(one)}};
}

status run_case(const bench_case& one, context& here) {
    status (*const body)(context&) = here.on_gpu() ? one.on_gpu : one.on_cpu;
    if (body == nullptr) {
        here.leave_out(one.name, here.on_gpu()
                                     ? "it has nothing to measure on a GPU; give --backend cpu"
                                     : "it needs a GPU; give --backend gpu where there is one");
        return {};
    }
    here.progress(std::string(one.name) + ": " + one.about);
    status ended = body(here);
    if (!ended.ok()) ended.message = std::string("bench ") + one.name + ": " + ended.message;
    return ended;
}

status print(const context& here, backend where) {
    // A line for each row, so that two files of results can be compared line by line.
    const auto line = [](const json& value) {
        return value.dump(-1, ' ', false, json::error_handler_t::replace);
    };
    std::string text =
        "{\"machine\":" + line(machine_json(where, here.asked().directory, here.asked().commit)) +
        ",\n\"results\":[";
    for (std::size_t i = 0; i < here.figures().size(); ++i)
        text += (i > 0 ? ",\n" : "\n") + line(row_of(here.figures()[i]));
    text += "\n]}\n";
    apps::output_file standard_output;
    status ended = standard_output.open("");
    if (ended.ok()) ended = standard_output.write(text.data(), text.size());
    return ended;
}

status run_cases(const settings& asked, int device) {
    backend where = backend::cpu;
    if (status s = choose_backend(asked.where, device, where); !s) return s;
    context here(asked, where);
    for (const std::string& name : asked.cases)
        for (const bench_case& one : case_table())
            if (name == one.name)
                if (status s = run_case(one, here); !s) return s;
    return print(here, where);
}

}  // namespace

std::string about_cases() {
    std::string out;
    for (const bench_case& one : case_table()) {
        std::string name = one.name;
        name.resize(12, ' ');
        out += "  " + name + one.about + "\n";
    }
    return out;
}

int run(const request& asked) {
    std::vector<std::string> known;
    for (const bench_case& one : case_table()) known.emplace_back(one.name);
    settings settled;
    options from_variables;
    status usage = settle(asked, known, settled);
    if (usage.ok()) usage = options::from_environment(from_variables);
    if (usage.ok()) usage = from_variables.check();
    if (!usage.ok()) {
        apps::say(usage.message);
        return apps::exit_usage;
    }
    const status ended = run_cases(settled, from_variables.device);
    if (ended.ok()) return apps::exit_done;
    if (ended.code != -EPIPE) apps::say(ended.message);
    return apps::exit_failed;
}

}  // namespace penstock::bench
