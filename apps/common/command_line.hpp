// Command lines: typed options with their ranges, those that every program has, and one clear line
// about a mistake. Only the source file knows CLI11, which takes long to compile.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/numbers.hpp"
#include "common/process.hpp"
#include "penstock/runtime.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock::apps {

// As given on the command line; empty: not given.
struct common_flags {
    std::string backend;
    std::string device;
    std::string devices;
    std::string cache;
    std::string page;
    std::string workers;
    bool json = false;
    bool quiet = false;
};

// How many devices of a runtime a command can use.
enum class device_use { single, several };

// Adds --backend, --device, --devices, --cache, --page, --workers, --json, --quiet and --version.
// The help has --devices only where the command can use several.
void add_common_flags(CLI::App& app, common_flags& flags, device_use use = device_use::single);

// Adds an option that takes a value which may not be empty; `form` stands for it in the help.
CLI::Option* add_value(CLI::App& app, const std::string& flag, std::string& out,
                       const std::string& about, const char* form);

// The range of a number: both ends belong to it. `words` says it where "from 1 to 1,000" would not
// do, with the cure.
template <typename Number>
struct range {
    Number least, most;
    std::string words;
};

// Declares the options of one command. Each reads its text into the variable that it is for, which
// keeps its value if the option is not given; the first text that cannot be used becomes the
// `mistake` of the command line. An empty text never can.
class option_list {
public:
    // `text` is what was given; the message of a failure names `flag`, text and cure.
    using reader = std::function<status(const std::string& flag, const std::string& text)>;

    option_list(CLI::App& app, status& mistake);

    // What stands without a flag; it must be given. The second may be several.
    void operand(const char* name, std::string& out, const char* about);
    void operands(const char* name, std::vector<std::string>& out, const char* about);
    // Several or none.
    void optional_operands(const char* name, std::vector<std::string>& out, const char* about);

    // Of the option that was declared last. The help says so.
    void required();

    // "--compare" sets `out`, "!--no-windows" clears it.
    void flag(const char* name, bool& out, const char* about);
    // Of programs whose kernels read files: "--windows". Requests bring a file that is read once
    // faster than windows that are opened for it.
    void windows_flag(bool& out);

    // `form` stands for the value in the help. "-o,--out": the last name is the one in messages.
    option_list& text(const char* flag, std::string& out, const std::string& about,
                      const char* form);
    option_list& value(const char* flag, const reader& read, const std::string& about,
                       const char* form);
    // A reader that is a function of what it reads into.
    template <typename Out>
    option_list& value(const char* flag,
                       status (*read)(const std::string&, const std::string&, Out&),
                       std::type_identity_t<Out>& out, const std::string& about, const char* form) {
        const auto read_into_out = [read, &out](const std::string& name, const std::string& text) {
            return read(name, text, out);
        };
        return value(flag, read_into_out, about, form);
    }

    // A number of a range.
    template <typename Number>
    option_list& number(const char* flag, Number& out, range<std::type_identity_t<Number>> allowed,
                        const std::string& about, const char* form) {
        if (allowed.words.empty()) allowed.words = words_of(allowed.least, allowed.most);
        const auto read = [&out, allowed](const std::string& name, const std::string& text) {
            return parse_number<Number>(name.c_str(), text, allowed.least, allowed.most,
                                        allowed.words, out);
        };
        return value(flag, read, about, form);
    }

    // A number of bytes that is not 0: "64KiB". `example` is one for the message.
    option_list& size(const char* flag, std::uint64_t& out, std::uint64_t most, const char* example,
                      const std::string& about, const char* form);

    // One of several names; or some of them, with commas between. `noun` is what each name is one
    // of: "method".
    option_list& choice(const char* flag, std::string& out, const std::vector<std::string>& names,
                        const char* noun, const std::string& about, const char* form);
    option_list& choices(const char* flag, std::vector<std::string>& out,
                         const std::vector<std::string>& names, const char* noun,
                         const std::string& about, const char* form);

private:
    template <typename Number>
    static std::string words_of(Number least, Number most) {
        if constexpr (std::is_integral_v<Number>) {
            if (least == 0 && most == std::numeric_limits<Number>::max())
                return "that fits " + std::to_string(8 * sizeof most) + " bits and is not negative";
            return "from " + with_commas(least) + " to " + with_commas(most);
        } else {
            return "from " + text_of_bound(least) + " to " + text_of_bound(most);
        }
    }
    static std::string text_of_bound(double bound);

    CLI::App& app_;
    CLI::Option* last_ = nullptr;
    status& mistake_;
};

// Parses. Nothing if the program should go on; else the exit status, with help printed on standard
// output, or one line about the mistake on standard error.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

// The text of one of the flags of options, such as "--cache"; empty: not given, or no such flag.
std::string flag_text(const common_flags& flags, const std::string& flag);

// Environment first, flags over it, ranges checked. -EINVAL and a message with option, value and
// cure.
status settle_options(const common_flags& flags, options& out, device_use use = device_use::single);

// A runtime for these options. What it logs until it stands goes to `notes`, so that a failure is
// one line; later lines go to the log of the options, or where there is none to standard error.
status create_runtime(options settings, std::vector<std::string>& notes,
                      std::unique_ptr<runtime>& out, device_use use = device_use::single);

// The same; the notes go to standard error as soon as the runtime stands, unless `quiet`.
status create_runtime(options settings, bool quiet, std::unique_ptr<runtime>& out);

// -EINVAL if the options name several devices; `user` is what uses a single device: "this program".
status check_single_device(const options& settings, const std::string& user);

// Why penstock::launch returned `code`, which is not 0.
status launch_error(const runtime& rt, int code);

}  // namespace penstock::apps
