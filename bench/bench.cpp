#include "bench.hpp"

#include <nlohmann/json.hpp>

#include "cases.hpp"
#include "common/files.hpp"
#include "common/message.hpp"
#include "machine.hpp"

namespace penstock::bench {

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
