// penstock man and penstock completion: what the command lines say, for man and for shells.
#include "command.hpp"
#include "common/manual.hpp"

namespace penstock::cli {

namespace {

const command_text man_text = {
    "man", "Prints a page of the manual: of this program, or of one of its commands.\n",
    "\nTo read one: penstock man cat | man -l -. An installed Penstock has them where man looks.\n",
    false, "man: "};

class man_command : public command {
public:
    explicit man_command(const CLI::App& program) : command(man_text), program_(program) {}

    void add_options(apps::option_list& add) override {
        add.optional_operands("COMMAND", names_, "The command (default: the program)");
    }

    status run() override {
        std::string wanted = "penstock", known;
        for (const std::string& name : names_) wanted += "-" + name;
        for (const apps::manual_page& page : apps::manual_pages(apps::describe(program_))) {
            if (page.name == wanted) return apps::print_json(page.text);
            constexpr std::string_view prefix = "penstock-";
            if (page.name.rfind(prefix, 0) == 0)
                known += (known.empty() ? "" : ", ") + page.name.substr(prefix.size());
        }
        used_wrongly = true;
        return {-EINVAL,
                "COMMAND: there is no page " + apps::shown(wanted) + "; the commands are " + known};
    }

private:
    const CLI::App& program_;
    std::vector<std::string> names_;
};

const command_text completion_text = {
    "completion", "Prints the completion of command lines for a shell: bash, zsh or fish.\n",
    "\nFor this session of bash: source <(penstock completion bash). An installed Penstock has the "
    "files where shells look.\n",
    false, "completion: "};

class completion_command : public command {
public:
    explicit completion_command(const CLI::App& program)
        : command(completion_text), program_(program) {}

    void add_options(apps::option_list& add) override {
        add.operand("SHELL", shell_, "bash, zsh or fish");
    }

    status check() override {
        for (const std::string& known : apps::completion_shells())
            if (known == shell_) return {};
        return {-EINVAL,
                "SHELL: " + apps::shown(shell_) + " is no shell here; give bash, zsh or fish"};
    }

    status run() override {
        return apps::print_json(apps::completion_of(apps::describe(program_), shell_));
    }

private:
    const CLI::App& program_;
    std::string shell_;
};

}  // namespace

std::unique_ptr<command> make_man(const CLI::App& program) {
    return std::make_unique<man_command>(program);
}
std::unique_ptr<command> make_completion(const CLI::App& program) {
    return std::make_unique<completion_command>(program);
}

}  // namespace penstock::cli
