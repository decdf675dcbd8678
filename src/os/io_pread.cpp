// Reads done one after the other by the service thread itself, where io_uring is refused or not
// wanted.
#include "os/env.hpp"

namespace penstock::host {

namespace {

class pread_engine final : public io_engine {
public:
    explicit pread_engine(environment& env) : env_(env) {}

    [[nodiscard]] const char* name() const override { return "pread"; }
    [[nodiscard]] std::uint32_t capacity() const override { return 64; }
    void start(const read_operation& operation) override { queued_.push_back(operation); }

    void submit() override {
        for (const read_operation& one : queued_)
            finished_.push_back({one.tag, env_.read(one.fd, one.to, one.bytes, one.offset)});
        queued_.clear();
    }

    void reap(std::vector<read_result>& out, std::uint64_t) override {
        out.insert(out.end(), finished_.begin(), finished_.end());
        finished_.clear();
    }

private:
    environment& env_;
    std::vector<read_operation> queued_;
    std::vector<read_result> finished_;
};

}  // namespace

std::unique_ptr<io_engine> make_pread_engine(environment& env) {
    return std::make_unique<pread_engine>(env);
}

}  // namespace penstock::host
