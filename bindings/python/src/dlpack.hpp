// The DLPack ABI, versions 0 and 1.
#pragma once

#include <cstdint>

namespace phasor::python {

inline constexpr std::int32_t kDlCpu = 1;
enum DlCode : std::uint8_t {
  kDlInt = 0,
  kDlUInt = 1,
  kDlFloat = 2,
  kDlBfloat = 4,
  kDlBool = 6,
};
inline constexpr std::uint64_t kDlReadOnly = 1;
inline constexpr std::uint32_t kDlMajor = 1;

struct DlDevice {
  std::int32_t type, id;
};
struct DlType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t rank;
  DlType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: row-major
  std::uint64_t byte_offset;
};
struct DlManaged {  // version 0, capsule "dltensor"
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};
struct DlVersion {
  std::uint32_t major, minor;
};
struct DlManagedVersioned {  // version 1, capsule "dltensor_versioned"
  DlVersion version;
  void* context;
  void (*deleter)(DlManagedVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};

// A library's function table, capsule "dlpack_exchange_api" in its array type's attribute
// __dlpack_c_exchange_api__.
struct DlExchange {
  DlVersion version;
  DlExchange* previous;
  int (*allocate)(DlTensor* prototype, DlManagedVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_of)(void* object, DlManagedVersioned** out);
  int (*object_of)(DlManagedVersioned* tensor, void** object);
  int (*tensor_of)(void* object, DlTensor* out);  // borrowed from the object; may be null
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

}  // namespace phasor::python
