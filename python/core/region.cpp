// Regions for Python, and the tensors of DLPack that share their memory.
#include "penstock/region.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "core/core.hpp"
#include "core/dlpack.hpp"
#include "device/device.hpp"
#include "os/process_owner.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using shared_region = std::shared_ptr<file_region>;

// The ends of regions that threads of their own bring about. A region keeps its place among those
// of its file, and its memory, until its thread has run.
class region_ends {
public:
    // The number of this end.
    std::uint64_t begin() {
        const std::lock_guard lock(mutex_);
        under_way_.insert(++begun_);
        return begun_;
    }
    void end(std::uint64_t number) {
        const std::lock_guard lock(mutex_);
        under_way_.erase(number);
        ++ended_;
        changed_.notify_all();
    }
    [[nodiscard]] std::uint64_t ended() {
        const std::lock_guard lock(mutex_);
        return ended_;
    }
    // Waits until those have ended that are under way now.
    void wait(std::chrono::steady_clock::time_point until) {
        std::unique_lock lock(mutex_);
        const std::uint64_t last = begun_;
        changed_.wait_until(lock, until,
                            [&] { return under_way_.empty() || *under_way_.begin() > last; });
    }
    // Waits until one more than `so_far` has ended. False: none is under way, or the time is up.
    bool wait_for_more(std::uint64_t so_far, std::chrono::steady_clock::time_point until) {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, until, [&] { return ended_ != so_far || under_way_.empty(); });
        return ended_ != so_far;
    }

    // Two last uses at the same time would each take the other for the last. True: it was not.
    bool drop_unless_last(shared_region& use) {
        const std::lock_guard lock(dropping_);
        if (use.use_count() <= 1) return false;
        use.reset();
        return true;
    }

private:
    std::mutex dropping_;
    std::mutex mutex_;  // of the rest
    std::condition_variable changed_;
    std::set<std::uint64_t> under_way_;
    std::uint64_t begun_ = 0, ended_ = 0;
};

// The region with the wait for the device before its memory goes: a framework drops the last tensor
// once it has queued the kernels that use it, on a stream that is not known here. Of a device that
// cannot be waited for the memory stays for good. `gpu`: negative on CPU threads.
shared_region held(std::unique_ptr<file_region> made, int gpu) {
    return {made.release(), [gpu](file_region* of) {
                const bool has_memory = of->data() != nullptr;  // else it is closed
                if (gpu < 0 || !has_memory || host::wait_for_gpu(gpu) == 0) delete of;
            }};
}

// A use whose end may wait in this thread, which holds no GIL.
void drop_here(shared_region& use) {
    if (!host::one_of_process<region_ends>().drop_unless_last(use)) use.reset();
}

// The last use of a region's memory may end anywhere: in the collector of a framework, on any
// thread, with or without the GIL, after the interpreter. The end of a region waits for the device
// or for the file, and a line for the log may need the GIL, so a thread does that.
void end_use(shared_region use) {
    region_ends& ends = host::one_of_process<region_ends>();
    if (ends.drop_unless_last(use)) return;
    std::uint64_t number = 0;
    try {
        number = ends.begin();
        std::thread([&ends, number, last = std::move(use)]() mutable {
            last.reset();
            ends.end(number);
        }).detach();
    } catch (const std::exception&) {
        ends.end(number);  // no thread: the memory is given back here after all
    }
}

// Without the GIL. Maps a region after those whose use has ended, so that a loop that opens one at
// a time has the memory of one; an end that takes long holds it up for a moment only. Tries again
// after each end that was under way if no place or no memory was left.
template <typename Map>
status map_after_ends(const Map& map) {
    constexpr std::chrono::milliseconds moment(100);
    constexpr std::chrono::seconds longest(10);
    region_ends& ends = host::one_of_process<region_ends>();
    const auto now = std::chrono::steady_clock::now();
    ends.wait(now + moment);
    for (;;) {
        const std::uint64_t so_far = ends.ended();
        const status s = map();
        if (s.code != -EMFILE && s.code != -ENOMEM) return s;
        // Others may end regions all the time, and this one may fit at no time.
        if (std::chrono::steady_clock::now() >= now + longest) return s;
        if (!ends.wait_for_more(so_far, now + longest)) return s;
    }
}

struct tensor_use {
    shared_region region;
    std::vector<std::int64_t> shape, strides;
};

template <typename Managed>
void end_tensor(Managed* tensor) {
    if (tensor == nullptr) return;
    auto* const use = static_cast<tensor_use*>(tensor->context);
    end_use(std::move(use->region));
    delete use;
    delete tensor;
}

// A capsule that no consumer took ends the tensor itself; a consumer renames what it takes.
template <typename Managed>
void end_capsule(PyObject* capsule, const char* name) {
    if (PyCapsule_IsValid(capsule, name) == 0) return;
    end_tensor(static_cast<Managed*>(PyCapsule_GetPointer(capsule, name)));
}

constexpr const char* plain_name = "dltensor";
constexpr const char* versioned_name = "dltensor_versioned";

class region_box {
public:
    // `gpu`: its number; negative on CPU threads.
    region_box(shared_region region, std::string path, int gpu)
        : path(std::move(path)), gpu_(gpu), region_(std::move(region)) {}
    ~region_box() {
        const without_gil free;
        drop_here(region_);
    }

    // Keeps the memory as long as this lives: its address was handed out by number.
    void keep() {
        const std::lock_guard lock(mutex_);
        kept_ = true;
    }

    [[nodiscard]] shared_region open() const {
        shared_region region;
        {
            const std::lock_guard lock(mutex_);
            if (!closed_) region = region_;
        }
        if (region == nullptr) raise(-EBADF, "the region is closed; open it again");
        return region;
    }
    [[nodiscard]] bool is_closed() const {
        const std::lock_guard lock(mutex_);
        return closed_;
    }

    void close(std::uintptr_t stream) {
        shared_region last;
        {
            const std::lock_guard lock(mutex_);
            if (closed_) return;
            closed_ = true;
            last = region_;
            if (!kept_) region_.reset();
        }
        std::int64_t code = 0;
        {
            const without_gil free;
            const auto on = reinterpret_cast<device_stream>(stream);
            // Tensors that share the memory may live on, and change it. One that is gone may have
            // kernels.
            const bool is_shared = last.use_count() > 1;
            const int waited = is_shared || gpu_ < 0 ? 0 : host::wait_for_gpu(gpu_);
            code = waited != 0 ? waited : is_shared ? last->detach(on) : last->close(on);
            if (waited != 0 || code == -EBUSY) put_back(last);
            drop_here(last);
        }
        if (code != -ECHILD) check(code, "closing a region", path);
    }

    [[nodiscard]] dlpack::tensor tensor_of(tensor_use& use, const std::vector<std::int64_t>& shape,
                                           int code, int bits, std::uint64_t front,
                                           int device) const {
        use.region = open();
        use.shape = shape;
        use.strides.assign(shape.size(), 1);
        for (std::size_t i = shape.size(); i-- > 1;) use.strides[i - 1] = use.strides[i] * shape[i];
        return {static_cast<std::byte*>(use.region->data()) + front,
                {gpu_ >= 0 ? dlpack::cuda : dlpack::host_memory, device},
                static_cast<std::int32_t>(shape.size()),
                {static_cast<dlpack::kind>(code), static_cast<std::uint8_t>(bits), 1},
                use.shape.data(),
                use.strides.data(),
                0};
    }

    const std::string path;  // of the file, for errors

private:
    // After a close() that could not be: it left the region open.
    void put_back(const shared_region& of) {
        const std::lock_guard lock(mutex_);
        region_ = of;
        closed_ = false;
    }

    const int gpu_;
    mutable std::mutex mutex_;  // of the rest
    shared_region region_;
    bool kept_ = false, closed_ = false;
};

nb::object exported(const region_box& box, const std::vector<std::int64_t>& shape, int code,
                    int bits, std::uint64_t front, int device, bool versioned, bool read_only) {
    auto use = std::make_unique<tensor_use>();
    const dlpack::tensor tensor = box.tensor_of(*use, shape, code, bits, front, device);
    PyObject* capsule = nullptr;
    if (versioned) {
        using managed = dlpack::managed_tensor_versioned;
        auto made = std::make_unique<managed>(
            managed{1, 1, use.get(), end_tensor<managed>, read_only ? 1u : 0u, tensor});
        capsule = PyCapsule_New(made.get(), versioned_name,
                                [](PyObject* of) { end_capsule<managed>(of, versioned_name); });
        if (capsule != nullptr) made.release();
    } else {
        using managed = dlpack::managed_tensor;
        auto made = std::make_unique<managed>(managed{tensor, use.get(), end_tensor<managed>});
        capsule = PyCapsule_New(made.get(), plain_name,
                                [](PyObject* of) { end_capsule<managed>(of, plain_name); });
        if (capsule != nullptr) made.release();
    }
    if (capsule == nullptr) throw nb::python_error();
    use.release();
    return nb::steal(capsule);
}

// Holds a region for an object of Python that has its address, or for a call that keeps the GIL:
// `close` in another thread may have left it the last use.
struct region_use {
    shared_region region;
    ~region_use() { end_use(std::move(region)); }
};

std::unique_ptr<region_box> make_region(const runtime_box& of, const file_name& path,
                                        const file_name& place, std::uint64_t offset,
                                        std::uint64_t bytes, bool writes, bool outside_writers,
                                        std::optional<std::uint64_t> device_bytes, bool promote_hot,
                                        std::uint32_t device, int placement) {
    const std::shared_ptr<runtime> rt = of.open();
    device_of(*rt, device);
    std::unique_ptr<file_region> made;
    status s;
    {
        const without_gil free;
        s = map_after_ends([&] {
            return map_region(*rt, path.bytes, offset, bytes,
                              writes ? protection::read_write : protection::read,
                              {outside_writers, device_bytes, promote_hot, device,
                               static_cast<region_placement>(placement)},
                              made);
        });
    }
    check(s, path.bytes);
    const int gpu = rt->where() == backend::gpu ? rt->settings(device).device : -1;
    return std::make_unique<region_box>(held(std::move(made), gpu), place.bytes, gpu);
}

template <typename Verb>
std::int64_t count_of_region(region_box& box, const char* name, Verb of_region) {
    shared_region region = box.open();
    std::int64_t done = 0;
    {
        const without_gil free;
        done = of_region(*region);
        drop_here(region);
    }
    return check(done, name, box.path);
}

device_stream stream_at(std::uintptr_t address) { return reinterpret_cast<device_stream>(address); }

using counts = std::vector<std::pair<std::string, std::uint64_t>>;

// The numbers have the lock that a call of another thread holds while it moves pages, and a line of
// that call for the log may need the GIL.
counts traffic_of(const region_box& box) {
    shared_region region = box.open();
    region_traffic t;
    {
        const without_gil free;
        t = region->traffic();
        drop_here(region);
    }
    return {{"pages_fetched", t.pages_fetched},
            {"pages_from_neighbours", t.pages_from_neighbours},
            {"pages_from_caches", t.pages_from_caches},
            {"pages_from_buffers", t.pages_from_buffers},
            {"pages_direct", t.pages_direct},
            {"pages_released", t.pages_released},
            {"bytes_written", t.bytes_written},
            {"bytes_on_device", t.bytes_on_device},
            {"bytes_promoted", t.bytes_promoted},
            {"bytes_registered", t.bytes_registered},
            {"register_ns", t.register_ns}};
}

}  // namespace

void bind_region(nb::module_& m) {
    nb::class_<region_use>(m, "RegionUse", "Keeps the memory of a region.");
    nb::class_<region_box>(m, "Region", "A part of a file as plain memory.")
        .def("close", &region_box::close, "stream"_a)
        .def("keep", &region_box::keep)
        .def_prop_ro("closed", &region_box::is_closed)
        .def("data",
             [](const region_box& box) {
                 const region_use use{box.open()};
                 return reinterpret_cast<std::uintptr_t>(use.region->data());
             })
        .def("size_bytes",
             [](const region_box& box) {
                 const region_use use{box.open()};
                 return use.region->size_bytes();
             })
        .def("use",
             [](const region_box& box) {
                 return std::make_unique<region_use>(region_use{box.open()});
             })
        .def("acquire",
             [](region_box& box, std::uint64_t offset, std::optional<std::uint64_t> bytes,
                std::uintptr_t stream) {
                 return count_of_region(box, "acquire", [&](file_region& r) {
                     return r.acquire(region_part{offset, bytes}, stream_at(stream));
                 });
             })
        .def("release",
             [](region_box& box, std::uint64_t offset, std::optional<std::uint64_t> bytes,
                std::uintptr_t stream) {
                 return count_of_region(box, "release", [&](file_region& r) {
                     return r.release(region_part{offset, bytes}, stream_at(stream));
                 });
             })
        .def("prefer",
             [](region_box& box, std::uint64_t offset, std::uint64_t bytes, std::uintptr_t stream) {
                 return count_of_region(box, "prefer", [&](file_region& r) {
                     return r.prefer(offset, bytes, stream_at(stream));
                 });
             })
        .def("sync",
             [](region_box& box) {
                 count_of_region(box, "sync",
                                 [](file_region& r) { return std::int64_t{r.sync()}; });
             })
        .def("traffic", traffic_of)
        .def("placement",
             [](const region_box& box) {
                 const region_use use{box.open()};
                 return std::pair<int, nb::str>(static_cast<int>(use.region->placement()),
                                                shown(use.region->placement_reason()));
             })
        .def("dlpack", exported, "shape"_a, "code"_a, "bits"_a, "front"_a, "device"_a,
             "versioned"_a, "read_only"_a);
    m.def("make_region", make_region, "runtime"_a, "path"_a, "place"_a, "offset"_a, "bytes"_a,
          "writes"_a, "outside_writers"_a, "device_bytes"_a.none(), "promote_hot"_a, "device"_a,
          "placement"_a);
}

}  // namespace penstock::python
