// Pictures of 24 x 24, drawn with the colour of the text around them.
export const icons = {
  clocks: '<circle cx="12" cy="12" r="9"/><path d="M12 12l5-4M12 12l-2-6"/>',
  table: '<rect x="3.5" y="4.5" width="17" height="15" rx="2"/><path d="M3.5 9.5h17M3.5 14.5h17M9 4.5v15M15 4.5v15"/>',
  decay: '<path d="M4 4v16h16"/><path d="M7 7c2 7 4 9 6 8s3-1 7 1"/>',
  scalings: '<path d="M4 19h16M6 15V9M11 15V6M16 15v-4"/><path d="M20 15v-2"/>',
  layouts: '<path d="M4 7h16M4 17h16M7 7c0 5 10 5 10 10M17 7c0 5-10 5-10 10"/>',
  accuracy: '<circle cx="12" cy="12" r="8.5"/><circle cx="12" cy="12" r="3.5"/><path d="M12 2v4M12 18v4M2 12h4M18 12h4"/>',
  diagnose: '<circle cx="10.5" cy="10.5" r="6.5"/><path d="M15.5 15.5L21 21M8 10.5h5M10.5 8v5"/>',
  attention: '<rect x="4" y="4" width="16" height="16" rx="2"/><path d="M4 9.3h5.3V4M4 14.6h10.6V4M9.3 9.3v10.7M14.6 14.6V20"/>',
  auto: '<circle cx="12" cy="12" r="8.5"/><path d="M12 3.5v17a8.5 8.5 0 000-17z" fill="currentColor"/>',
  light: '<circle cx="12" cy="12" r="4"/><path d="M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6l1.5 1.5M16.9 16.9l1.5 1.5M18.4 5.6l-1.5 1.5M7.1 16.9l-1.5 1.5"/>',
  dark: '<path d="M19.5 14.5A8 8 0 019.5 4.5a8 8 0 1010 10z"/>',
  play: '<path d="M8 5.5v13l10.5-6.5z" fill="currentColor"/>',
  pause: '<path d="M8 5.5v13M16 5.5v13" stroke-width="3"/>',
  file: '<path d="M6 3.5h8l4.5 4.5v12.5H6zM14 3.5V8h4.5M12 18v-6M9.5 14.5L12 12l2.5 2.5"/>',
};
