// penstock info: the machine, what works here and why not, the limits, and the options in force.
#include "command.hpp"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "machine.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/version.hpp"
#include "settings/tables.hpp"

namespace penstock::cli {

namespace {

using nlohmann::json;

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
                   "Makes a runtime with these options to find out; exit status 1 if that fails.\n",
                   "", true}) {}

    void add_options(apps::option_list&) override {}

    status run() override {
        const gpu_report gpus = look_at_gpus(settings.device);
        text_ = std::string("Penstock ") + version() + "\n\nDevices\n";
        tell_host();
        tell_gpus(gpus);
        text_ += "\nWhat works here\n";
        std::vector<finding> findings = probe_host();
        findings.insert(findings.end(), gpus.findings.begin(), gpus.findings.end());
        for (const finding& f : findings) {
            object_["works"].push_back({{"what", f.feature}, {"works", f.works}, {"why", f.why}});
            line(f.feature, (f.works ? "yes" : "no") + (f.why.empty() ? "" : ": " + f.why));
        }
        text_ += "\nLimits\n";
        tell_limits();
        const status made = tell_runtime();
        const status ended = apps::print_json(common.json ? line_of(object_) : text_);
        return ended.ok() ? made : ended;
    }

private:
    void line(const std::string& name, const std::string& value) {
        text_ += "  " + in_column(name, 28) + value + "\n";
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

    void tell_gpus(const gpu_report& found) {
        object_["cuda"] = {{"built_with", text_or_null(found.runtime)},
                           {"driver", text_or_null(found.driver)},
                           {"why_not", text_or_null(found.why)}};
        object_["gpus"] = json::array();
        for (const gpu& g : found.gpus) {
            object_["gpus"].push_back({{"number", g.number},
                                       {"name", g.name},
                                       {"compute_capability", g.capability},
                                       {"memory_bytes", g.memory_bytes},
                                       {"free_bytes", g.free_bytes},
                                       {"multiprocessors", g.multiprocessors}});
            line("GPU " + std::to_string(g.number),
                 g.name + ", " + roughly(g.memory_bytes) + ", " + roughly(g.free_bytes) +
                     " free, compute capability " + g.capability);
        }
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
        json device = nullptr, io = nullptr;
        if (made.ok()) {
            in_force = rt->settings();
            device = rt->device_name();
            io = rt->io_name();
        }
        rt.reset();  // before the log it writes to
        object_["runtime"] = {{"made", made.ok()},
                              {"why_not", text_or_null(made.message)},
                              {"device", device},
                              {"io", io},
                              {"log", log}};
        text_ += "\nOptions in force\n";
        for (const settings::option_entry& option : settings::option_entries())
            tell_option(option, in_force);
        text_ += "\nRuntime\n";
        for (const std::string& said : log) line("note", said);
        if (made.ok())
            line("made",
                 "on " + device.get<std::string>() + ", reading with " + io.get<std::string>());
        return made;
    }

    void tell_option(const settings::option_entry& option, const options& in_force) {
        const char* const set = std::getenv(option.variable);
        const char* const source = !apps::flag_text(common, option.flag).empty() ? "command line"
                                   : set != nullptr && *set != '\0'              ? "environment"
                                   : settings::is_automatic(option, settings)    ? "automatic"
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

    json object_;
    std::string text_;
};

}  // namespace

std::unique_ptr<command> make_info() { return std::make_unique<info_command>(); }

}  // namespace penstock::cli
