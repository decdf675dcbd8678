// Completion of command lines for bash, zsh and fish. The first two have one function that finds
// out which command the words before the cursor lead to; fish has a line for each word.
#include <algorithm>
#include <functional>

#include "common/manual.hpp"

namespace penstock::apps {

namespace {

// The words after the program's name, each with a blank before it: " trace show".
std::string path_of(const described_command& command) {
    return command.name.substr(std::min(command.name.find(' '), command.name.size()));
}

void for_each_command(const described_command& command,
                      const std::function<void(const described_command&)>& use) {
    use(command);
    for (const described_command& each : command.commands) for_each_command(each, use);
}

std::string function_name(const described_command& program) {
    std::string out = "_" + program.name;
    std::replace(out.begin(), out.end(), '-', '_');
    return out;
}

// In single quotes, which end nowhere inside in any of the shells.
std::string in_quotes(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' || c == '\\' || c == '\n' ? ' ' : c;
    return out + "'";
}

// Cases of the first two: the command that the words lead to, and the options that take a value.
std::string cases_of_paths(const described_command& program) {
    std::string out;
    for_each_command(program, [&](const described_command& command) {
        if (&command != &program)
            out += "            " + in_quotes(path_of(command)) + ") led_to=\"$led_to $word\" ;;\n";
    });
    return out;
}

std::string cases_of_values(const described_command& program, const std::string& action) {
    std::string out;
    for_each_command(program, [&](const described_command& command) {
        std::string names;
        for (const described_option& option : command.options)
            if (!option.form.empty())
                for (const std::string& name : option.names)
                    names += (names.empty() ? "" : "|") + in_quotes(path_of(command) + " " + name);
        if (!names.empty()) out += "        " + names + ")\n            " + action + " ;;\n";
    });
    return out;
}

std::string bash_of(const described_command& program) {
    const std::string function = function_name(program);
    std::string out = "# Completion of " + program.name +
                      " for bash; made from its command line.\n" + function +
                      "() {\n"
                      "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                      "    local led_to= word words=\n"
                      "    COMPREPLY=()\n"
                      "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
                      "        case \"$led_to $word\" in\n" +
                      cases_of_paths(program) +
                      "        esac\n"
                      "    done\n"
                      "    case \"$led_to $prev\" in\n" +
                      cases_of_values(program, "return") +
                      "    esac\n"
                      "    case \"$led_to\" in\n";
    for_each_command(program, [&](const described_command& command) {
        std::string words;
        for (const described_command& each : command.commands) words += each.word() + " ";
        std::string options;
        for (const described_option& option : command.options)
            for (const std::string& name : option.names) options += name + " ";
        // Options only once a dash is there, so that files and commands stand alone before.
        out += "        " + in_quotes(path_of(command)) +
               ")\n            words=" + in_quotes(words) +
               "\n            [[ $cur == -* ]] && words=" + in_quotes(options) + " ;;\n";
    });
    return out +
           "    esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "}\n"
           // What no word fits is the name of a file.
           "complete -o default -F " +
           function + " " + program.name + "\n";
}

std::string zsh_pair(const std::string& word, const std::string& about) {
    std::string name;
    for (const char c : word) name += c == ':' ? std::string("\\:") : std::string(1, c);
    return in_quotes(name + ":" + about);
}

std::string zsh_of(const described_command& program) {
    const std::string function = function_name(program);
    std::string out = "#compdef " + program.name +
                      "\n# Completion for zsh; made from its command line.\n" + function +
                      "() {\n"
                      "    local led_to= word\n"
                      "    local -a commands options\n"
                      "    for word in \"${(@)words[2,CURRENT-1]}\"; do\n"
                      "        case \"$led_to $word\" in\n" +
                      cases_of_paths(program) +
                      "        esac\n"
                      "    done\n"
                      "    case \"$led_to ${words[CURRENT-1]}\" in\n" +
                      cases_of_values(program, "_files; return") +
                      "    esac\n"
                      "    case \"$led_to\" in\n";
    for_each_command(program, [&](const described_command& command) {
        out += "        " + in_quotes(path_of(command)) + ")\n            commands=(";
        for (const described_command& each : command.commands)
            out += "\n                " + zsh_pair(each.word(), each.in_short());
        out += ")\n            options=(";
        for (const described_option& option : command.options)
            for (const std::string& name : option.names)
                out += "\n                " + zsh_pair(name, option.about);
        out += ") ;;\n";
    });
    return out +
           "    esac\n"
           "    if [[ ${words[CURRENT]} == -* ]]; then\n"
           "        _describe -o option options\n"
           "    elif (( ${#commands} )); then\n"
           "        _describe command commands\n"
           "    else\n"
           "        _files\n"
           "    fi\n"
           "}\n" +
           function + " \"$@\"\n";
}

std::string fish_of(const described_command& program) {
    std::string out =
        "# Completion of " + program.name + " for fish; made from its command line.\n";
    for_each_command(program, [&](const described_command& command) {
        // Of the program: until one of its commands is there. Of a command: once it is there.
        std::string when;
        if (&command != &program) when = "__fish_seen_subcommand_from " + command.word();
        if (!command.commands.empty()) {
            when += (when.empty() ? "" : "; and ") + std::string("not __fish_seen_subcommand_from");
            for (const described_command& each : command.commands) when += " " + each.word();
        }
        const std::string begin =
            "complete -c " + program.name + (when.empty() ? "" : " -n " + in_quotes(when));
        for (const described_command& each : command.commands)
            out += begin + " -f -a " + each.word() + " -d " + in_quotes(each.in_short()) + "\n";
        for (const described_option& option : command.options) {
            out += begin;
            for (const std::string& name : option.names)
                out += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
            out += (option.form.empty() ? "" : " -r") + (" -d " + in_quotes(option.about)) + "\n";
        }
    });
    return out;
}

}  // namespace

std::vector<std::string> completion_shells() { return {"bash", "zsh", "fish"}; }

std::string completion_of(const described_command& program, const std::string& shell) {
    return shell == "bash" ? bash_of(program) : shell == "zsh" ? zsh_of(program) : fish_of(program);
}

}  // namespace penstock::apps
