// The commands of penstock trace: their help, their common options and reports.
#pragma once

#include "command.hpp"
#include "common/files.hpp"
#include "trace/formats.hpp"

namespace penstock::trace {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(operation_counts, reads, writes, flushes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(file_entry, path, pages)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(made_contents, distinct, seed, common_pages, common_distinct,
                                   own_distinct)

}  // namespace penstock::trace

namespace penstock::cli {

inline const char* name_of_format(bool binary) { return binary ? "binary" : "text"; }

inline std::string text_of(const trace::operation_counts& of) {
    const auto told = [](std::uint64_t count, const char* noun, const char* plural) {
        return apps::with_commas(count) + noun + (count == 1 ? "" : plural);
    };
    return told(of.reads, " read", "s") + ", " + told(of.writes, " write", "s") + ", " +
           told(of.flushes, " flush", "es");
}

// A command below "trace".
class trace_command : public command {
public:
    trace_command(const char* name, const char* about)
        : command({name, about,
                   "\nA trace is text, or binary, which shows when it was cut or changed; every "
                   "command takes both. Traces and files appear whole or not at all. "
                   "tools/trace_import.py in the sources makes traces of what blkparse and fio "
                   "recorded.\n"}) {}

protected:
    void add_output(apps::option_list& add) {
        add.text("-o,--out", out_, "File that gets the trace", "TRACE").required();
        add.flag("--text", text_, "As text");
        add.flag("--binary", binary_, "Binary");
    }
    // For check(), once the report's form is known.
    [[nodiscard]] mistake apart_from_report() const {
        const status s = apps::check_not_report(common.json, out_);
        return {!s.ok(), s.message};
    }
    void add_input(apps::option_list& add) { add.operand("TRACE", input_, "The trace"); }
    void add_report(apps::option_list& add) {
        add.flag("--json", common.json, "Print exactly one JSON object on standard output");
        add.flag("--quiet", common.quiet, "Print no summary; errors and warnings still appear");
    }

    // With --json the object, else one line for people on standard error.
    status report_line(const nlohmann::json& object, const std::string& line) const {
        if (common.json) return report(object, "");
        if (!common.quiet) apps::say(line);
        return {};
    }

    static nlohmann::json json_of(const trace::trace_header& header) {
        return {
            {"page_bytes", header.page_bytes},
            {"files", header.files},
            {"contents", header.contents ? nlohmann::json(*header.contents) : nlohmann::json()}};
    }

    std::string input_, out_;
    bool text_ = false, binary_ = false;
};

std::unique_ptr<command> make_trace_generate();

}  // namespace penstock::cli
