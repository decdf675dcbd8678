// The walk over the App, and the pages of the manual. completion.cpp has the shells.
#include "common/manual.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/message.hpp"
#include "penstock/version.hpp"

namespace penstock::apps {

namespace {

// Programs whose commands have pages of their own.
constexpr const char* program_of_pages = "penstock";

described_option option_from(const CLI::Option& from) {
    described_option out{{}, from.get_option_text(), from.get_description()};
    for (const std::string& name : from.get_snames()) out.names.push_back("-" + name);
    for (const std::string& name : from.get_lnames()) out.names.push_back("--" + name);
    return out;
}

std::string trimmed(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

described_command describe_below(const CLI::App& app, const std::string& before) {
    described_command out{before + app.get_name(),
                          trimmed(app.get_description()),
                          trimmed(app.get_footer()),
                          {},
                          {},
                          {}};
    for (const CLI::Option* const each : app.get_options()) {
        if (each->get_group().empty()) continue;
        if (each->get_positional() && each->get_lnames().empty())
            out.operands.push_back({each->get_name(), each->get_description(), each->get_required(),
                                    each->get_items_expected_max() > 1});
        else out.options.push_back(option_from(*each));
    }
    for (const CLI::App* const each : app.get_subcommands([](const CLI::App*) { return true; }))
        if (!each->get_group().empty())
            out.commands.push_back(describe_below(*each, out.name + " "));
    return out;
}

std::string with_dashes(std::string name) {
    std::replace(name.begin(), name.end(), ' ', '-');
    return name;
}

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
}

// Text as roff takes it: nothing in it is a request or an escape.
std::string roff_text(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const bool begins_line = out.empty() || out.back() == '\n';
        if (begins_line && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\') out += "\\e";
        else if (c == '-') out += "\\-";
        else out += c;
    }
    return out;
}

// Paragraphs are filled, and lines that begin with blanks are not.
std::string paragraphs(const std::string& text) {
    std::istringstream lines(text);
    std::string out, line;
    bool as_it_is = false, begins = true;
    while (std::getline(lines, line)) {
        const bool indented = line.rfind("  ", 0) == 0;
        if (as_it_is != indented) {
            out += indented ? ".PP\n.nf\n" : ".fi\n";
            begins = !indented;
            as_it_is = indented;
        }
        if (line.empty()) begins = true;
        else {
            if (begins && !as_it_is) out += ".PP\n";
            begins = false;
            out += roff_text(line) + "\n";
        }
    }
    return out + (as_it_is ? ".fi\n" : "");
}

std::string shown_operand(const described_operand& operand) {
    const std::string name = "\\fI" + roff_text(operand.name) + "\\fR";
    return (operand.required ? name : "[" + name + "]") + (operand.repeats ? "..." : "");
}

std::string synopsis(const described_command& command) {
    std::string out = ".B " + roff_text(command.name) + "\n[\\fIOPTIONS\\fR]";
    for (const described_operand& operand : command.operands) out += " " + shown_operand(operand);
    if (!command.commands.empty() && command.operands.empty()) out += " \\fICOMMAND\\fR ...";
    return out + "\n";
}

std::string shown_options(const described_command& command) {
    std::string out;
    for (const described_operand& operand : command.operands)
        out += ".TP\n" + shown_operand(operand) + "\n" + roff_text(operand.about) + "\n";
    for (const described_option& option : command.options) {
        out += ".TP\n";
        for (std::size_t i = 0; i < option.names.size(); ++i)
            out += (i == 0 ? "" : ", ") + ("\\fB" + roff_text(option.names[i]) + "\\fR");
        if (!option.form.empty()) out += " \\fI" + roff_text(option.form) + "\\fR";
        out += "\n" + roff_text(option.about) + "\n";
    }
    return out;
}

std::string section_of(const described_command& command) {
    std::string out = ".SS " + roff_text(command.name) + "\n" + synopsis(command) +
                      paragraphs(command.about) + shown_options(command) +
                      paragraphs(command.details);
    for (const described_command& each : command.commands) out += section_of(each);
    return out;
}

std::string list_of_commands(const described_command& program) {
    std::string out;
    for (const described_command& each : program.commands)
        out += ".TP\n\\fB" + roff_text(each.word()) + "\\fR, see " +
               roff_text(with_dashes(each.name)) + "(1)\n" + roff_text(each.in_short()) + "\n";
    return out;
}

std::string page_text(const described_command& command, bool lists_commands) {
    const std::string name = with_dashes(command.name);
    std::string out = ".TH \"" + roff_text(upper(name)) + "\" 1 \"\" \"Penstock " + version() +
                      "\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n" + roff_text(name) + " \\- " +
                      roff_text(command.in_short()) + "\n.SH SYNOPSIS\n" + synopsis(command) +
                      ".SH DESCRIPTION\n" + paragraphs(command.about) +
                      paragraphs(command.details) + ".SH OPTIONS\n" + shown_options(command);
    if (!command.commands.empty()) {
        out += ".SH COMMANDS\n";
        if (lists_commands) out += list_of_commands(command);
        else
            for (const described_command& each : command.commands) out += section_of(each);
    }
    out +=
        ".SH ENVIRONMENT\nVariables that begin with PENSTOCK_ set options that are not given;\n"
        ".B penstock info\nlists them with the values in force.\n.SH SEE ALSO\n";
    return out + ".BR penstock (1)\n";
}

status write_file(const std::filesystem::path& path, const std::string& text) {
    std::error_code failed;
    std::filesystem::create_directories(path.parent_path(), failed);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (file.good()) return {};
    return {-EIO, shown(path.string()) + " cannot be written; give another directory"};
}

}  // namespace

std::string described_command::word() const { return name.substr(name.rfind(' ') + 1); }

std::string described_command::in_short() const {
    std::string text = about.substr(0, about.find("\n\n"));
    std::replace(text.begin(), text.end(), '\n', ' ');
    const std::string prefix = "Penstock: ";
    if (text.rfind(prefix, 0) == 0) text.erase(0, prefix.size());
    if (const std::size_t end = text.find(". "); end != std::string::npos) text.resize(end);
    while (!text.empty() && text.back() == '.') text.pop_back();
    if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0)
        text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
    return text;
}

described_command describe(const CLI::App& app) { return describe_below(app, ""); }

std::vector<manual_page> manual_pages(const described_command& program) {
    const bool has_pages = program.name == program_of_pages;
    std::vector<manual_page> out = {{program.name, page_text(program, has_pages)}};
    if (has_pages)
        for (const described_command& each : program.commands)
            out.push_back({with_dashes(each.name), page_text(each, false)});
    return out;
}

status write_manual(const described_command& program, const std::string& directory) {
    const std::filesystem::path below(directory);
    for (const manual_page& page : manual_pages(program))
        if (status s = write_file(below / "man/man1" / (page.name + ".1"), page.text); !s) return s;
    const std::pair<const char*, std::string> files[] = {
        {"bash", "bash-completion/completions/" + program.name},
        {"zsh", "zsh/site-functions/_" + program.name},
        {"fish", "fish/vendor_completions.d/" + program.name + ".fish"}};
    for (const auto& [shell, path] : files)
        if (status s = write_file(below / path, completion_of(program, shell)); !s) return s;
    return {};
}

std::optional<int> manual_asked(const CLI::App& app, int argc, char** argv) {
    if (argc != 3 || std::strcmp(argv[1], manual_option) != 0) return std::nullopt;
    const status done = write_manual(describe(app), argv[2]);
    if (done.ok()) return exit_done;
    say(done.message);
    return exit_failed;
}

}  // namespace penstock::apps
