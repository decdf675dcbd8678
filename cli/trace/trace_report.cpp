#include "trace_report.hpp"

#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

namespace penstock::trace_command {

namespace {

using apps::with_commas;
using nlohmann::json;

json begin(const char* command) {
    return {{"program", "penstock trace"}, {"version", version()}, {"command", command}};
}

json json_of(const trace::trace_header& header) {
    json files = json::array();
    for (const trace::file_entry& file : header.files)
        files.push_back({{"path", file.path}, {"pages", file.pages}});
    json contents = nullptr;
    if (header.contents) {
        const trace::made_contents& c = *header.contents;
        contents = {{"distinct", c.distinct},
                    {"seed", c.seed},
                    {"common_pages", c.common_pages},
                    {"common_distinct", c.common_distinct},
                    {"own_distinct", c.own_distinct}};
    }
    return {{"page_bytes", header.page_bytes}, {"files", files}, {"contents", contents}};
}

// One line of JSON on standard output, or one for people on standard error.
status put(const report_form& form, const json& object, const std::string& line) {
    if (form.json) return apps::print_json(apps::line_of(object));
    if (!form.quiet) apps::say(line);
    return {};
}

const char* name_of(bool binary) { return binary ? "binary" : "text"; }

std::string counts_of(std::uint64_t reads, std::uint64_t writes, std::uint64_t flushes) {
    const auto one = [](std::uint64_t count, const char* what, const char* more) {
        return with_commas(count) + what + (count == 1 ? "" : more);
    };
    return one(reads, " read", "s") + ", " + one(writes, " write", "s") + ", " +
           one(flushes, " flush", "es");
}

std::string share(double of) { return apps::text_of("%.1f %%", 100 * of); }

std::string text_of(const std::string& path, const trace::summary& s) {
    const trace::trace_header& h = s.header;
    std::string out = apps::shown(path) + ": " + name_of(s.binary) + ", pages of " +
                      format_size(h.page_bytes) + "\n";
    for (std::size_t f = 0; f < h.files.size(); ++f)
        out += "file " + std::to_string(f) + ": " + apps::shown(h.files[f].path) + ", " +
               with_commas(h.files[f].pages) + " pages\n";
    if (h.contents) out += "contents: " + with_commas(h.contents->distinct) + " distinct\n";
    if (h.contents && h.contents->common_pages > 0)
        out +=
            "common: the first " + with_commas(h.contents->common_pages) + " pages of each file\n";
    out += with_commas(s.records) + " records: " + counts_of(s.reads, s.writes, s.flushes) + "\n";
    out += with_commas(s.pages_read) + " pages read, " + with_commas(s.pages_written) +
           " written; " + with_commas(s.with_content) + " writes name their contents\n";
    out += apps::text_of("%.6f s from first to last",
                         1e-9 * static_cast<double>(s.last_ns - s.first_ns)) +
           "\n";
    if (!s.counted)
        return out + "the files are too large, or the records too wide, to count pages\n";
    return out + with_commas(s.distinct_pages) + " distinct pages; the hottest 1 % take " +
           share(s.hottest_1) + " of the accesses, the hottest 10 % " + share(s.hottest_10) + "\n";
}

}  // namespace

status report(const report_form& form, const trace::generate_request& asked,
              const trace::generate_report& done) {
    json out = begin("generate");
    out.update({{"trace", asked.out},
                {"format", name_of(asked.binary)},
                {"reads", done.reads},
                {"writes", done.writes},
                {"flushes", done.flushes},
                {"data_bytes", done.data_bytes},
                {"seconds", done.seconds}});
    out.update(json_of(done.header));
    std::string line = asked.out + ": " + counts_of(done.reads, done.writes, done.flushes);
    if (done.data_bytes > 0) line += "; " + format_size(done.data_bytes) + " of data made";
    return put(form, out, line + apps::text_of(" in %.2f s", done.seconds));
}

status report(const report_form& form, const trace::import_request& asked,
              const trace::import_report& done) {
    json out = begin("import");
    out.update({{"input", asked.input},
                {"trace", asked.out},
                {"format", name_of(asked.binary)},
                {"lines", done.lines},
                {"reads", done.reads},
                {"writes", done.writes},
                {"flushes", done.flushes},
                {"widened", done.widened},
                {"late", done.late},
                {"skipped", json(done.skipped)},
                {"seconds", done.seconds}});
    out.update(json_of(done.header));
    std::string line = asked.out + ": " + counts_of(done.reads, done.writes, done.flushes) +
                       " from " + with_commas(done.lines) + " lines";
    if (done.widened > 0) line += "; " + with_commas(done.widened) + " widened to whole pages";
    if (done.late > 0)
        line += "; " + with_commas(done.late) + " out of order got the time of the one before";
    const char* before = "; skipped: ";
    for (const auto& [why, times] : done.skipped) {
        line += before + with_commas(times) + " " + why;
        before = ", ";
    }
    return put(form, out, line);
}

status report_converted(const report_form& form, const std::string& from, const std::string& to,
                        bool binary, std::uint64_t records) {
    json out = begin("convert");
    out.update({{"input", from}, {"trace", to}, {"format", name_of(binary)}, {"records", records}});
    return put(form, out, to + ": " + with_commas(records) + " records as " + name_of(binary));
}

status report(const report_form& form, const std::string& path, const trace::summary& s) {
    if (!form.json) return form.quiet ? status{} : apps::print_json(text_of(path, s));
    json out = begin("show");
    out.update({{"trace", path},
                {"format", name_of(s.binary)},
                {"records", s.records},
                {"reads", s.reads},
                {"writes", s.writes},
                {"flushes", s.flushes},
                {"writes_with_content", s.with_content},
                {"pages_read", s.pages_read},
                {"pages_written", s.pages_written},
                {"first_ns", s.first_ns},
                {"last_ns", s.last_ns},
                {"duration_ns", s.last_ns - s.first_ns},
                {"distinct_pages", s.counted ? json(s.distinct_pages) : json(nullptr)},
                {"hottest_1_percent_share", s.counted ? json(s.hottest_1) : json(nullptr)},
                {"hottest_10_percent_share", s.counted ? json(s.hottest_10) : json(nullptr)}});
    out.update(json_of(s.header));
    return apps::print_json(apps::line_of(out));
}

}  // namespace penstock::trace_command
