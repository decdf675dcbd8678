// Pages of the manual and shell completion, made from the command lines of the programs: one walk
// over a CLI11 App, and a writer for each form.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace CLI {
class App;
}

namespace penstock::apps {

struct described_option {
    std::vector<std::string> names;  // "-o", "--out"
    std::string form;                // what stands for its value in the help; "": it takes none
    std::string about;
};

struct described_operand {
    std::string name, about;
    bool required, repeats;
};

// A program, or a command of one.
struct described_command {
    std::string name;     // "penstock trace show"
    std::string about;    // paragraphs; lines that begin with blanks stand as they are
    std::string details;  // likewise
    std::vector<described_option> options;
    std::vector<described_operand> operands;
    std::vector<described_command> commands;

    [[nodiscard]] std::string word() const;  // "show"
    // The first sentence of `about`, as a list has it: without the point, and in small letters.
    [[nodiscard]] std::string in_short() const;
};

// Without what the help hides.
described_command describe(const CLI::App& app);

// In the language of man. A command of `penstock` has a page of its own, and `penstock` a list of
// them; the commands of the other programs stand on the program's page.
struct manual_page {
    std::string name;  // "penstock-trace", without the section, which is 1
    std::string text;
};
std::vector<manual_page> manual_pages(const described_command& program);

// "bash", "zsh", "fish".
std::vector<std::string> completion_shells();
std::string completion_of(const described_command& program, const std::string& shell);

// Writes the pages and all completions below a directory as they are installed below share/, which
// is made if it is not there.
status write_manual(const described_command& program, const std::string& directory);

// The option of every program that calls write_manual(), for the build: as the first of two
// arguments. Nothing if it was not given, else the exit status.
inline constexpr const char* manual_option = "--write-manual";
std::optional<int> manual_asked(const CLI::App& app, int argc, char** argv);

}  // namespace penstock::apps
