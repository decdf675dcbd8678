// Places of a graph that need no GPU of their own: a region, and for CPU threads a copy and a map.
#include <cerrno>

#include "common/device_memory.hpp"
#include "common/message.hpp"
#include "graph_place.hpp"
#include "penstock/region.hpp"

namespace penstock::sssp {

status whole_place::read_all(std::byte* to) const {
    return each_piece([&](std::uint32_t, std::uint64_t at, std::uint64_t bytes) {
        return read(to + at, bytes, at);
    });
}

namespace {

class region_place final : public graph_place {
public:
    region_place(runtime& rt, const graph_file& graph, bool outside_writers)
        : rt_(rt), graph_(graph), outside_writers_(outside_writers) {}

    status open() override {
        region_options settings;
        settings.outside_writers = outside_writers_;
        return map_region(rt_, graph_.real_path(), 0, 0, protection::read, settings, region_);
    }
    status refresh(std::uint64_t& pages) override {
        const std::int64_t code = region_->acquire();
        if (code < 0)
            return apps::failure(static_cast<int>(code), apps::shown(graph_.path),
                                 ": acquire: ", error_text(code),
                                 code == -ESTALE ? "; the file became shorter, so start again"
                                                 : "; see that the file can be read");
        pages = static_cast<std::uint64_t>(code);
        return {};
    }
    [[nodiscard]] const std::byte* data() const override {
        return static_cast<const std::byte*>(region_->data());
    }
    [[nodiscard]] std::string note() const override {
        return outside_writers_ ? "region, any program may write the file"
                                : "region, what is written comes through the mount";
    }

private:
    runtime& rt_;
    const graph_file& graph_;
    const bool outside_writers_;
    std::unique_ptr<file_region> region_;
};

class copy_place final : public whole_place {
public:
    using whole_place::whole_place;
    [[nodiscard]] const std::byte* data() const override { return data_; }
    [[nodiscard]] std::string note() const override {
        return "the whole file, by " + std::to_string(threads()) + " threads";
    }

private:
    status allocate() override {
        if (memory_->allocate(data_, bytes())) return {};
        return {-ENOMEM, "--method copy: " + format_size(bytes()) +
                             " of memory are not free; use --method cpu"};
    }
    status bring() override { return read_all(data_); }

    std::unique_ptr<apps::device_memory> memory_ = apps::make_host_memory();
    std::byte* data_ = nullptr;
};

class mapped_place final : public graph_place {
public:
    explicit mapped_place(const graph_file& graph) : graph_(graph) {}
    status open() override { return file_.open(graph_.real_path(), graph_.shape.file_bytes()); }
    status refresh(std::uint64_t& pages) override {
        pages = 0;
        return {};
    }
    [[nodiscard]] const std::byte* data() const override {
        return reinterpret_cast<const std::byte*>(file_.data());
    }
    [[nodiscard]] std::string note() const override { return "memory map"; }

private:
    const graph_file& graph_;
    apps::mapped_file file_;
};

}  // namespace

std::unique_ptr<graph_place> make_region_place(runtime& rt, const graph_file& graph,
                                               bool outside_writers) {
    return std::make_unique<region_place>(rt, graph, outside_writers);
}

std::unique_ptr<graph_place> make_copy_place(const graph_file& graph, std::uint32_t threads) {
    return std::make_unique<copy_place>(graph, threads);
}

std::unique_ptr<graph_place> make_mapped_place(const graph_file& graph) {
    return std::make_unique<mapped_place>(graph);
}

}  // namespace penstock::sssp
