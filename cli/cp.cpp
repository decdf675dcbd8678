// penstock cp: files copied by the operating system, or by a kernel through the cache.
#include <limits>
#include <span>

#include "command.hpp"
#include "common/device_memory.hpp"
#include "copier.hpp"

namespace penstock::cli {

namespace {

using apps::shown;
using apps::with_commas;

const command_text cp_text = {
    "cp", "Copies files: by the operating system, or by a kernel through the page cache.\n",
    "\nOne file to another name, or files into a directory that exists. A copy that is there is "
    "overwritten and keeps its\npermissions; a new one gets its source's, less the umask. Links "
    "are followed, and holes stay holes. All names are looked at\nbefore the first byte is "
    "written; one that is wrong ends the program with nothing changed. If a file cannot be copied\n"
    "to its end, it is said how far it came, the copy ends there, and the other files are still "
    "copied.\nWithout --fsync the copy is what other programs read, but may be lost if the machine "
    "fails.\nThe operating system copies, which is faster; file systems that can share blocks "
    "share them. A kernel copies with --kernel,\nor where an option says how it should: --backend, "
    "--device, --cache, --page, --workers, --no-windows.\n",
    true};

class cp_command : public command {
public:
    cp_command() : command(cp_text) {}

    void add_options(apps::option_list& add) override {
        add.operands("FILES", names_,
                     "Files to copy, and last the name of the copy or a directory to copy into");
        add.flag("--fsync", wanted_.fsync,
                 "End only when the copies and their names are on storage");
        add.flag("--verify", wanted_.verify, "Read every copy back and compare it with its source");
        add.flag("--kernel", kernel_,
                 "Copy by a kernel on the GPU, or by CPU threads of the cpu back end");
        add.flag("!--no-windows", wanted_.windows,
                 "Read every page by a request to the host, even what the OS page cache has. GPU "
                 "only; for measuring");
    }

    status check() override {
        if (names_.size() < 2)
            return {-EINVAL,
                    "only " + shown(names_.back()) +
                        " was given; name a file and where its copy goes, see penstock cp --help"};
        settings.roots = {"."};  // names on a command line start at the working directory
        settings.writable = true;
        // On CPU threads a cache beyond what is in flight costs the first touch of its memory. The
        // operating system's copies ask for no GPU.
        constexpr std::uint64_t enough = std::uint64_t{64} << 20;
        if (is_for_kernel() && !settings.cache_bytes && !apps::will_use_gpu(settings))
            settings.cache_bytes = std::max(enough, 64 * settings.page_bytes);
        return {};
    }

    status run() override {
        if (status s = apps::watch_signals(); !s) return s;
        const std::string destination = names_.back();
        names_.pop_back();
        std::vector<planned_copy> plans;
        constexpr auto any_length =
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        const std::uint64_t most_bytes = is_for_kernel() ? cp::most_bytes : any_length;
        if (status s = plan_copies(names_, destination, most_bytes, plans); !s) return s;
        for (const planned_copy& plan : plans)
            if (status s = apps::check_not_report(common.json || !common.quiet, plan.to); !s)
                return s;
        if (status s = make_copier(); !s) return s;
        const status ended = copy_all(plans);
        copier_->finish();
        if (!ended) return ended;
        if (was_interrupted())
            return {-ECANCELED, "interrupted; " + with_commas(totals_.files) + " of " +
                                    with_commas(plans.size()) + " files were copied"};
        return totals_.failed == 0 ? report_work() : status{-EIO, ""};  // it has been said
    }

private:
    [[nodiscard]] bool is_for_kernel() const {
        const auto is_given = [](const std::string& value) { return !value.empty(); };
        return kernel_ || !wanted_.windows || is_given(common.backend) || is_given(common.device) ||
               is_given(common.cache) || is_given(common.page) || is_given(common.workers);
    }

    status make_copier() {
        if (is_for_kernel()) return make_kernel_copier(settings, wanted_, common.quiet, copier_);
        copier_ = make_host_copier(wanted_);
        return {};
    }

    // What failed has been said and is counted, except what is returned.
    status copy_all(const std::vector<planned_copy>& plans) {
        std::uint64_t bytes = 0;
        for (const planned_copy& plan : plans) bytes += plan.bytes;
        const apps::progress bar(
            "copying", bytes, [this] { return copier_->bytes_written(); }, !common.quiet);
        for (std::span<const planned_copy> left = plans; !left.empty() && !was_interrupted();) {
            const std::size_t now = copier_->files_at_once(left);
            if (status s = copier_->copy(left.first(now), totals_); !s) return s;
            left = left.subspan(now);
        }
        return {};
    }

    status report_work() const {
        const copy_totals& t = totals_;
        const double rate =
            t.seconds > 0 ? static_cast<double>(t.bytes - t.hole_bytes) / t.seconds : 0;
        std::string text =
            with_commas(t.files) + (t.files == 1 ? " file, " : " files, ") + bytes_text(t.bytes) +
            (t.hole_bytes > 0 ? " (" + with_commas(t.hole_bytes) + " of them holes)" : "") +
            (t.shared_bytes > 0 ? " (" + with_commas(t.shared_bytes) + " in shared blocks)" : "") +
            " copied in " + apps::text_of("%.3f s", t.seconds) + ", " +
            apps::text_of("%.2f GB/s", 1e-9 * rate);
        if (wanted_.verify)
            text += "; read back and compared in " + apps::text_of("%.3f s", t.verify_seconds);
        nlohmann::json object = copier_->facts();
        object.update({{"files", t.files},
                       {"bytes", t.bytes},
                       {"hole_bytes", t.hole_bytes},
                       {"shared_bytes", t.shared_bytes},
                       {"seconds", t.seconds},
                       {"bytes_per_second", rate},
                       {"fsync", wanted_.fsync},
                       {"verified", wanted_.verify},
                       {"verify_seconds", t.verify_seconds}});
        return report(object, text + "\n");
    }

    std::vector<std::string> names_;  // of the files, and last where they go
    copy_wishes wanted_;
    bool kernel_ = false;
    std::unique_ptr<copier> copier_;
    copy_totals totals_;  // of all files together
};

}  // namespace

std::unique_ptr<command> make_cp() { return std::make_unique<cp_command>(); }

}  // namespace penstock::cli
